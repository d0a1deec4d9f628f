"""Build of the extension module, with the compiler flags of the torch that is installed."""

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

setup(
    ext_modules=[CppExtension("litz_device_toy._C", ["src/litz_device_toy/device.cpp"])],
    cmdclass={"build_ext": BuildExtension},
)
