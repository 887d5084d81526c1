"""`python -m bayeslim_papers.sparse_vd`."""

from bayeslim_papers.sparse_vd import main

if __name__ == "__main__":
    main()
