"""python -m hecate: the version, whether libhecate is found, and whether hecate.torch can be used."""
import sys

from . import __version__
from ._library import Error, version, where


def main():
    print("hecate       %s (Python %s)" % (__version__, sys.version.split()[0]))
    try:
        from . import torch
        at = "ready, PyTorch %s" % torch.torch.__version__
    except ImportError as error:
        at = "not available: %s" % error
    try:
        print("libhecate    %s at %s" % (version(), where()))
        code = 0
    except Error as error:
        print("libhecate    %s" % error)
        code = 1
    print("hecate.torch %s" % at)
    return code


if __name__ == "__main__":
    sys.exit(main())
