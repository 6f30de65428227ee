"""Build backend (PEP 517) of the package beside it: a wheel is a zip file of hecate/*.py, hecate/torch/*.py and three
files about it. Standard library only, so that pip needs no index. Versions stand in hecate/_library.py and pyproject.toml; the test
compares them with the project's."""
import base64
import hashlib
import os
import re
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


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    version = _version()
    about = "hecate-%s.dist-info" % version
    files = {}
    for folder in ("", "torch"):
        for name in sorted(os.listdir(os.path.join(PACKAGE, folder))):
            if name.endswith(".py"):
                with open(os.path.join(PACKAGE, folder, name), "rb") as text:
                    files["/".join(filter(None, ("hecate", folder, name)))] = text.read()
    files[about + "/METADATA"] = (
        "Metadata-Version: 2.1\nName: hecate\nVersion: %s\nLicense: Apache-2.0\nRequires-Python: >=3.8\n"
        "Summary: Compares expert placement policies for Mixture-of-Experts models (libhecate), and records routers\n"
        % version).encode()
    files[about + "/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: build_wheel\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    record = "".join("%s,sha256=%s,%d\n" % (name, base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=")
                                            .decode(), len(data)) for name, data in files.items())
    files[about + "/RECORD"] = (record + about + "/RECORD,,\n").encode()
    wheel = "hecate-%s-py3-none-any.whl" % version
    with zipfile.ZipFile(os.path.join(wheel_directory, wheel), "w", zipfile.ZIP_DEFLATED) as out:
        for name, data in files.items():
            out.writestr(zipfile.ZipInfo(name), data)
    return wheel


def build_sdist(sdist_directory, config_settings=None):
    raise NotImplementedError("the package is part of hecate's source tree: install it from there")
