"""`python -m bayeslim.experiments.k_tied`."""

from bayeslim.experiments.k_tied import main

if __name__ == "__main__":
    main()
