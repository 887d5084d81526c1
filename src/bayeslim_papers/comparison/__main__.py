"""`python -m bayeslim_papers.comparison`."""

from bayeslim_papers.comparison import main

if __name__ == "__main__":
    main()
