"""`python -m bayeslim.experiments.vdp`."""

from bayeslim.experiments.vdp import main

if __name__ == "__main__":
    main()
