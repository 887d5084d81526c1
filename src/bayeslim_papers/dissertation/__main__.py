"""`python -m bayeslim_papers.dissertation`."""

from bayeslim_papers.dissertation import main

if __name__ == "__main__":
    main()
