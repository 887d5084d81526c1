"""`python -m bayeslim.experiments.dissertation`."""

from bayeslim.experiments.dissertation import main

if __name__ == "__main__":
    main()
