"""`python -m bayeslim.experiments.sparse_vd`."""

from bayeslim.experiments.sparse_vd import main

if __name__ == "__main__":
    main()
