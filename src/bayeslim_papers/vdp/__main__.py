"""`python -m bayeslim_papers.vdp`."""

from bayeslim_papers.vdp import main

if __name__ == "__main__":
    main()
