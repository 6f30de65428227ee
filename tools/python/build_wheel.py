"""Build backend (PEP 517) of the package beside it: a wheel is a zip file of hecate/*.py, hecate/torch/*.py and three
files about it. Standard library only, so that pip needs no index. Versions stand in hecate/_library.py and pyproject.toml; the test
compares them with the project's.

With libraries (tools/wheel) they stand in hecate/lib. Such a wheel is for Linux on this processor, with a glibc from
the newest symbol that they need. Files named .copyright are their licences and stand in dist-info/licenses with the
project's. GSL, under the GPL, may not be among them: the wheel says Apache-2.0 (runtime/exec/package/library.cmake).

    build_wheel.py FOLDER LIBRARY..."""
import base64
import hashlib
import os
import platform
import re
import sys
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.join(HERE, "hecate")


def _version():
    with open(os.path.join(PACKAGE, "_library.py")) as text:
        return re.search(r'^RELEASE = "([^"]+)"', text.read(), re.M).group(1)


def get_requires_for_build_wheel(config_settings=None):
    return []


def get_requires_for_build_sdist(config_settings=None):
    return []


def _tag(libraries):
    """py3-none-any, or of the libraries: their newest glibc symbol says where they run."""
    if not libraries:
        return "py3-none-any"
    newest = max(int(n) for data in libraries.values() for n in re.findall(rb"GLIBC_2\.(\d+)", data))
    return "py3-none-manylinux_2_%d_%s" % (max(newest, 17), platform.machine())


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None, libraries=()):
    version = _version()
    about = "hecate-%s.dist-info" % version
    files = {}
    for folder in ("", "torch"):
        for name in sorted(os.listdir(os.path.join(PACKAGE, folder))):
            if name.endswith(".py"):
                with open(os.path.join(PACKAGE, folder, name), "rb") as text:
                    files["/".join(filter(None, ("hecate", folder, name)))] = text.read()
    brought = {os.path.basename(path): open(path, "rb").read() for path in libraries}
    licences = {name: brought.pop(name) for name in list(brought) if name.endswith(".copyright")}
    if any(name.startswith("libgsl") for name in brought):
        sys.exit("build_wheel: expected a libhecate without GSL, found %s among the libraries" % ", ".join(sorted(brought)))
    tag = _tag(brought)
    files.update(("hecate/lib/" + name, data) for name, data in brought.items())
    files.update(("%s/licenses/%s" % (about, name), data) for name, data in licences.items())
    licence = os.path.join(HERE, "..", "..", "LICENSE")
    if os.path.exists(licence):
        files[about + "/licenses/LICENSE"] = open(licence, "rb").read()
    files[about + "/METADATA"] = (
        "Metadata-Version: 2.1\nName: hecate\nVersion: %s\nLicense: Apache-2.0\nRequires-Python: >=3.8\n"
        "Summary: Compares expert placement policies for Mixture-of-Experts models (libhecate), and records routers\n"
        % version).encode()
    files[about + "/WHEEL"] = ("Wheel-Version: 1.0\nGenerator: build_wheel\nRoot-Is-Purelib: %s\nTag: %s\n" %
                               ("false" if brought else "true", tag)).encode()
    record = "".join("%s,sha256=%s,%d\n" % (name, base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=")
                                            .decode(), len(data)) for name, data in files.items())
    files[about + "/RECORD"] = (record + about + "/RECORD,,\n").encode()
    wheel = "hecate-%s-%s.whl" % (version, tag)
    with zipfile.ZipFile(os.path.join(wheel_directory, wheel), "w", zipfile.ZIP_DEFLATED) as out:
        for name, data in files.items():
            out.writestr(zipfile.ZipInfo(name), data)
    return wheel


def build_sdist(sdist_directory, config_settings=None):
    raise NotImplementedError("the package is part of hecate's source tree: install it from there")


if __name__ == "__main__":
    print(os.path.join(sys.argv[1], build_wheel(sys.argv[1], libraries=sys.argv[2:])))
