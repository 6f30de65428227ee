"""libhecate by ctypes. $HECATE_LIBRARY names it. Else it is looked for in this package (a wheel of tools/wheel brings
it). Then beside the programs that this package came with (share/hecate/python of a build or an installation), and
where the loader finds it. Last beside hecate-sim: in its folder (a build) and in ../lib* (installed)."""
import ctypes
import glob
import os
import shutil

RELEASE = "0.2.0"  # pyproject.toml has it, too
VERSION = RELEASE.rsplit(".", 1)[0]  # before 1.0 a minor version may change functions


class Error(Exception):
    """What libhecate says about a call that failed."""
    __module__ = "hecate"  # where users find it, and what a traceback says


class BadInput(Error, ValueError):
    """The input or an option is wrong; the message names it."""
    __module__ = "hecate"


class Failed(Error, RuntimeError):
    """The run failed."""
    __module__ = "hecate"


_loaded = None
_loaded_from = None
HERE = os.path.dirname(os.path.abspath(__file__))
BUNDLED = os.path.join(HERE, "lib")


def _beside(folder, *below):
    return [name for b in below for name in sorted(glob.glob(os.path.join(folder, b, "libhecate.so." + VERSION)))]


def _candidates():
    given = os.environ.get("HECATE_LIBRARY")
    if given:
        return [given]
    names = [name for name in [os.path.join(BUNDLED, "libhecate.so." + VERSION)] if os.path.exists(name)]
    own = os.path.join("share", "hecate", "python", "hecate")
    if HERE.endswith(own):
        names += _beside(HERE[:-len(own)], "", "lib", "lib64", "lib/*")
    names += ["libhecate.so." + VERSION, "libhecate.so"]
    tool = shutil.which("hecate-sim")
    if tool:
        names += _beside(os.path.dirname(os.path.realpath(tool)), "", "../lib", "../lib64", "../lib/*")
    return names


def _open(name):
    """Of a wheel the libraries that it needs are opened first: the loader then takes those, by their names."""
    waiting = sorted(glob.glob(os.path.join(BUNDLED, "*"))) if os.path.dirname(name) == BUNDLED else []
    waiting = [path for path in waiting if path != name]
    for _ in range(len(waiting)):  # they need each other
        for path in list(waiting):
            try:
                ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
                waiting.remove(path)
            except OSError:
                pass
    return ctypes.CDLL(name)


def where():
    """The file that the library was opened from."""
    library()
    return _loaded_from


def library():
    """The library, opened once."""
    global _loaded, _loaded_from
    if _loaded is not None:
        return _loaded
    why = []
    for name in _candidates():
        try:
            found = _open(name)
            _loaded_from = name
            break
        except OSError as error:
            why.append(str(error))
    else:
        raise Failed("libhecate was not found (%s); install a wheel of tools/wheel, or build it and set HECATE_LIBRARY to build/libhecate.so, or install "
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
