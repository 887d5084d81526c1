"""`python -m bayeslim_papers.samplers`."""

from bayeslim_papers.samplers import main

if __name__ == "__main__":
    main()
