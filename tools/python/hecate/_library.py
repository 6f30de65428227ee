"""libhecate by ctypes. It is looked for as $HECATE_LIBRARY, where the loader finds it, and beside hecate-sim: in its
folder (a build) and in ../lib* (installed)."""
import ctypes
import glob
import os
import shutil

RELEASE = "0.2.0"  # pyproject.toml has it, too
VERSION = RELEASE.rsplit(".", 1)[0]  # before 1.0 a minor version may change functions


class Error(Exception):
    """What libhecate says about a call that failed."""


class BadInput(Error, ValueError):
    """The input or an option is wrong; the message names it."""


class Failed(Error, RuntimeError):
    """The run failed."""


_loaded = None


def _candidates():
    given = os.environ.get("HECATE_LIBRARY")
    if given:
        return [given]
    names = ["libhecate.so." + VERSION, "libhecate.so"]
    tool = shutil.which("hecate-sim")
    if tool:
        folder = os.path.dirname(os.path.realpath(tool))
        for below in ("", "../lib", "../lib64", "../lib/*"):
            names += sorted(glob.glob(os.path.join(folder, below, "libhecate.so." + VERSION)))
    return names


def library():
    """The library, opened once."""
    global _loaded
    if _loaded is not None:
        return _loaded
    why = []
    for name in _candidates():
        try:
            found = ctypes.CDLL(name)
            break
        except OSError as error:
            why.append(str(error))
    else:
        raise Failed("libhecate was not found (%s); build it, then set HECATE_LIBRARY to build/libhecate.so, or install "
                     "it and have hecate-sim on PATH" % "; ".join(why))
    text, number, pointer = ctypes.c_char_p, ctypes.c_int32, ctypes.POINTER
    found.hec_version.restype = found.hec_error.restype = found.hec_policy_name.restype = text
    found.hec_policy_name.argtypes = [number, pointer(text), pointer(text)]
    has = found.hec_version().decode()
    if has.rsplit(".", 1)[0] != VERSION:
        raise Failed("libhecate: expected version %s, found %s" % (VERSION, has))
    found.hec_simulate.argtypes = [text, ctypes.c_size_t, text, pointer(text), number, pointer(ctypes.c_void_p)]
    found.hec_simulate.restype = ctypes.c_int
    found.hec_simulate_free.argtypes = [ctypes.c_void_p]
    found.hec_simulate_free.restype = None
    _loaded = found
    return found


def check(code):
    if code != 0:
        message = library().hec_error().decode(errors="replace")
        raise (BadInput if code == 2 else Failed)(message)


def version():
    """The version of libhecate, MAJOR.MINOR.PATCH."""
    return library().hec_version().decode()


def policies():
    """Names of the policies that a trainer may use, with a line on each. hecate-sim --list has the reference rows, too."""
    found, summary = {}, ctypes.c_char_p()
    while True:
        name = library().hec_policy_name(len(found), ctypes.byref(summary), None)
        if name is None:
            return found
        found[name.decode()] = summary.value.decode()
