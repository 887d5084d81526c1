"""`python -m bayeslim_papers.k_tied`."""

from bayeslim_papers.k_tied import main

if __name__ == "__main__":
    main()
