"""Sessions for checks, tests, benchmarks and builds, each in an environment of its own: `nox -l` lists them."""

from __future__ import annotations

import os
import shutil
import sys
import tomllib
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

import nox

sys.path.insert(0, str(Path(__file__).parent / "tests"))
sys.path.insert(0, str(Path(__file__).parent / "tools"))

from ecosystem.catalogue import LIBRARIES
from installer_settings import listed_by_pip, variables_of
from oldest_siblings import Combination, combinations
from release import absent_from, archives, problems, selected, uncommitted
from release_tags import git, tag_of
from workspace import lowest_pins, read_packages, required, spelled

# Tests start hundreds of processes, each of which would compile all modules again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# uv makes in 6 s the environment that takes pip 40 s. It is told the user's own pip settings, which hold for torch.
nox.options.default_venv_backend = "uv|virtualenv"
if shutil.which("uv") or find_spec("uv"):
    for name, value in variables_of(listed_by_pip()).items():
        os.environ.setdefault(name, value)
nox.options.sessions = ["tests"]
nox.options.error_on_external_run = True

ROOT = Path(__file__).parent
PACKAGES = ROOT / "packages"
EXAMPLES = ROOT / "examples"
CONSTRAINTS = ROOT / "constraints.txt"
WORKSPACE = read_packages(ROOT)
FOLDERS = tuple(WORKSPACE)  # lowest layer first
ON_CPUS = [pkg for pkg in FOLDERS if pkg != "codegen-triton"]
TORCH_FREE = ("ir", "scheduler", "codegen-cpp")
# What importing every module takes, beyond the dependencies.
EXTRAS = {
    "ir": ["sympy"],
    "codegen-triton": ["runtime"],
    "frontend": ["fsspec", "redis", "signing"],
}

RUFF = "ruff>=0.17,<0.18"
SITE = (
    "mkdocs>=1.6,<2",
    "mkdocs-material>=9.6,<10",
    "mkdocs-awesome-nav>=3,<4",
    "mkdocstrings-python>=2.0,<3",
)
MYPY = "mypy>=2.4,<3"
IMPORT_LINTER = "import-linter>=2.16,<3"
XDIST = "pytest-xdist>=3.6,<4"
TWO_AT_A_TIME = ("-n", "2", "--dist", "loadfile")
SLOWEST = ("--durations", "20")
SLEEPING = {"OMP_WAIT_POLICY": "PASSIVE"}  # threads that wait for work leave the cores to the other process
OFFLINE = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
MODELS = ("transformers>=5.0,<6",)
CHARTS = "matplotlib>=3.9,<4"
IMAGES = ("timm>=1.0.20,<2", "torchvision")  # the constraints leave one torchvision: that of the pinned torch
OPINFO = ("expecttest>=0.3,<0.4",)  # what importing torch's operator database takes
UPSTREAM = (*OPINFO, "pytest", "hypothesis>=6,<7", "psutil", "filelock")  # what PyTorch's tests import
FOR_IMAGES = ("pillow>=11", "huggingface_hub", "safetensors", "pyyaml")  # their dependencies besides torch
FUZZ = ("hypothesis>=6,<7", "rich>=13,<16")
ON_TORCH = (
    "privateuse1_device",
)  # examples that need torch and all of litz, and are built by the torch they run with
FOR_TARGETS = ("numba>=0.68", "pyopencl>=2025.1")  # what the example targets import besides litz and NumPy

QUICK_ON_EVERY_ISA = "few_rows tiled_convolutions prepacked_matmuls linked_routines".split()
ON_EVERY_ISA = [*QUICK_ON_EVERY_ISA, *"""
    kernel_forms attention attention_on_cpus batch_invariant channel_groups channels_last complex composed_attention
    convolution_relu deployment dynamic_shapes end_to_end float8 flex_attention_on_cpus generated_matmuls higher_order
    indexing_end_to_end lanes_of_scatters libraries masks_end_to_end module_programs mutation_and_views opinfo_sample
    optimizers pool_indices prepacked_weights quantize random_numbers runs_of_lanes scans sorted_rows special_values
    strict symbolic_overloads threads torch_dtypes transposes unrepresentable_numbers view_programs whole_models zoo
""".split()]  # fmt: skip
"""Tests that compare with eager, by the names of their modules."""
EMULATORS = ("qemu-aarch64", "qemu-x86_64", "aarch64-linux-gnu-gcc", "aarch64-linux-gnu-g++")

each_package = nox.parametrize("pkg", [nox.param(pkg, id=pkg) for pkg in FOLDERS])


def with_siblings(pkg: str, extras: list[str]) -> list[str]:
    """Return the package's folder and those of every sibling that it needs, lowest layer first."""
    return list(required(WORKSPACE, pkg, extras))


def install(session: nox.Session, *what: str) -> None:
    """Install under the constraints file, so that nothing replaces the pinned torch and triton."""
    session.install("--constraint", str(CONSTRAINTS), *what)


def install_torch(session: nox.Session) -> None:
    """Install the pinned torch before anything that could ask for another one."""
    install(session, "torch")


def install_folders(session: nox.Session, folders: Iterable[str], tested: Iterable[str] = ()) -> None:
    """Install packages from their folders, editable, in one resolution so that siblings satisfy one another.

    Those in `tested` are installed with what their tests need.
    """
    extra = dict.fromkeys(tested, "[test]")
    install(session, *(part for pkg in folders for part in ("-e", f"{PACKAGES / pkg}{extra.get(pkg, '')}")))


def build_wheels(session: nox.Session, folders: list[str]) -> dict[str, Path]:
    """Build the wheels of some packages; the result maps a package's folder to its wheel."""
    target = (Path(session.create_tmp()) / "wheels").resolve()
    shutil.rmtree(target, ignore_errors=True)
    paths = [str(PACKAGES / pkg) for pkg in folders]
    if session.venv_backend == "uv":
        for path in paths:
            session.run("uv", "build", "--quiet", "--wheel", "--out-dir", str(target), path)
    else:
        session.run(
            "python", "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(target), *paths
        )
    wheels = {}
    for pkg in folders:
        (wheels[pkg],) = target.glob(f"{WORKSPACE[pkg].module}-[0-9]*.whl")
    return wheels


def install_wheels(session: nox.Session, wheels: dict[str, Path], pkg: str, extras: list[str]) -> None:
    """Install a package's wheel with extras, its siblings' wheels, and what they declare from the index."""
    files = [str(wheels[folder]) for folder in with_siblings(pkg, extras) if folder != pkg]
    suffix = f"[{','.join(extras)}]" if extras else ""
    install(session, *files, f"{wheels[pkg]}{suffix}")


@nox.session
def demo(session: nox.Session) -> None:
    """Compile two models and three small programs with litz on this machine, and compare times and results with
    eager."""
    install_torch(session)
    install(session, *MODELS)
    install_folders(session, ON_CPUS)
    session.run("python", str(ROOT / "benchmarks" / "demo.py"), *session.posargs)


@nox.session
def tests(session: nox.Session) -> None:
    """Run the tests of every package and those in tests/ that cross packages, in two processes at once."""
    install_torch(session)
    install(session, *OPINFO)
    install_folders(session, FOLDERS, tested=FOLDERS)
    session.install(XDIST)
    everything = [*TWO_AT_A_TIME, "packages", "tests"]
    session.run("pytest", *(session.posargs or everything), env=SLEEPING)


@nox.session
def isas(session: nox.Session) -> None:
    """Compare with eager what is compiled for instruction sets below this CPU's: AVX2 and the architecture's base, or
    those that are named: `nox -s isas -- avx2`. `quick` runs the fastest tests alone."""
    install_torch(session)
    install(session, *OPINFO)
    install_folders(session, FOLDERS, tested=FOLDERS)
    session.install(XDIST)
    quick = "quick" in session.posargs
    names = QUICK_ON_EVERY_ISA if quick else ON_EVERY_ISA
    files = [str(ROOT / "tests" / f"test_{name}.py") for name in names]
    for isa in [each for each in session.posargs if each != "quick"] or ("avx2", "scalar"):
        session.run("pytest", *TWO_AT_A_TIME, *SLOWEST, *files, env={"LITZ_ISA": isa, **SLEEPING})


@nox.session
def emulated(session: nox.Session) -> None:
    """Run under qemu what is compiled for CPUs that this machine is not: kernels for NEON and for the base of x86-64,
    models by the program in C, and lowering's tests with every kernel for NEON.

    Debian: qemu-user, gcc-aarch64-linux-gnu and g++-aarch64-linux-gnu; without them nothing but a sentence."""
    absent = [each for each in EMULATORS if shutil.which(each) is None]
    if absent:
        session.skip(f"{', '.join(absent)} not installed")
    install_torch(session)
    install_folders(session, FOLDERS, tested=FOLDERS)
    session.install(XDIST)
    run = ("pytest", "-rs", *TWO_AT_A_TIME, *SLOWEST)
    session.run(*run, "packages/codegen-cpp/tests/test_cpp_emulated.py", "tests/test_deploy_emulated.py")
    # Runs no kernels, and sorts rows as a GPU does.
    ignored = [
        f"--ignore=packages/lowering/tests/test_lowering_{name}.py" for name in ("text", "sorted_rows")
    ]
    how = ["-W", "ignore::RuntimeWarning", "-p", "emulated_instead", *ignored]
    path = {"PYTHONPATH": str(ROOT / "tests"), **SLEEPING}
    session.run(*run, *how, "packages/lowering/tests", *session.posargs, env=path)


@nox.session
@each_package
def tests_pkg(session: nox.Session, pkg: str) -> None:
    """Run one package's tests from its folder, with nothing but what they need."""
    if pkg not in TORCH_FREE:
        install_torch(session)
    install_folders(session, with_siblings(pkg, ["test"]), tested=[pkg])
    session.run("pytest", f"packages/{pkg}/tests", *session.posargs)


@nox.session
@each_package
def isolated(session: nox.Session, pkg: str) -> None:
    """Build a package's wheel, install it alone, import every module of it, then run its tests on it, in two processes
    at once."""
    extras = EXTRAS.get(pkg, [])
    wheels = build_wheels(session, with_siblings(pkg, [*extras, "test"]))
    if pkg not in TORCH_FREE:
        install_torch(session)
    install_wheels(session, wheels, pkg, extras)
    absent = ["torch", "triton"] if pkg in TORCH_FREE else []
    session.run("python", str(ROOT / "tools" / "import_all.py"), WORKSPACE[pkg].module, "--absent", *absent)
    install_wheels(session, wheels, pkg, [*extras, "test"])
    session.install(XDIST)
    session.run("pytest", *TWO_AT_A_TIME, *SLOWEST, f"packages/{pkg}/tests", *session.posargs, env=SLEEPING)


def install_example(session: nox.Session, folder: Path, *what: str) -> None:
    """Install an example from its folder, with what its tests need."""
    name = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]["name"]
    # uv would take an earlier build of a folder whose manifest has not changed.
    fresh = ("--reinstall-package", name) if session.venv_backend == "uv" else ()
    install(session, *fresh, *what, f"{folder}[test]")


def test_example(session: nox.Session, folder: Path) -> None:
    """Run the tests of an example by its own manifest, so that neither settings nor fixtures of the repository are
    used."""
    session.run("pytest", "-rs", "-c", str(folder / "pyproject.toml"), str(folder / "tests"), env=SLEEPING)


@nox.session
def targets(session: nox.Session) -> None:
    """Build the wheels of ir and the scheduler, install each example target from its folder on them, and run its tests;
    then those of the device for torch, on the wheels of all packages, and of the plan viewer, where there is Node.
    Without an OpenCL driver tests are skipped, which is said."""
    wheels = [str(wheel) for wheel in build_wheels(session, ["ir", "scheduler"]).values()]
    examples = {manifest.parent.name: manifest.parent for manifest in EXAMPLES.glob("*/pyproject.toml")}
    for name in sorted(examples.keys() - set(ON_TORCH)):
        install_example(session, examples[name], *wheels)
        test_example(session, examples[name])
    for name in ON_TORCH:
        install_torch(session)
        session.install("setuptools>=77")
        wheels = [str(wheel) for wheel in build_wheels(session, ON_CPUS).values()]
        install_example(session, examples[name], *wheels, "--no-build-isolation")
        test_example(session, examples[name])
    node = shutil.which("node")
    if node is None:
        session.log("node is not installed: the tests of the plan viewer are left out")
        return
    with session.chdir(EXAMPLES / "plan_viewer"):
        session.run(node, "--test", external=True)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and format with ruff, public names against their snapshots, reference pages and versions against
    public names, links, charts against their tables, names of devices, sizes of modules, and words by the glossary."""
    session.install(RUFF)
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("python", "tools/public_api.py", "--check")
    session.run("python", "tools/api_pages.py", "--check")
    session.run("python", "tools/version_contract.py")
    session.run("python", "tools/check_links.py")
    session.run("python", "tools/charts.py", "--check")
    session.run("python", "tools/device_names.py")
    session.run("python", "tools/module_sizes.py")
    session.run("python", "tools/vocabulary.py")


@nox.session
def types(session: nox.Session) -> None:
    """Check types strictly, package by package, then tests, tools and benchmarks."""
    install_torch(session)
    install_folders(session, FOLDERS, tested=FOLDERS)
    session.install(MYPY, "nox", CHARTS, "rich>=13.7", "mkdocs>=1.6,<2", *FOR_TARGETS)
    sources = [str(PACKAGES / pkg / "src") for pkg in FOLDERS]
    around = (
        "noxfile.py",
        "conftest.py",
        "tools",
        "benchmarks",
        "examples",
        "tests/opinfo",
        "tests/differential",
        "tests/whole_models",
        "tests/forms",
        "tests/replay",
        "tests/zoo",
        "tests/ecosystem",
        "tests/watched_processes.py",
        "tests/upstream",
        "packages/codegen-cpp/tests/maths",
    )
    session.run("mypy", *sources, *around)


@nox.session
def layers(session: nox.Session) -> None:
    """Check the import contracts between the packages and inside each of them."""
    session.install(IMPORT_LINTER)
    folders = [part for pkg in FOLDERS for part in ("-e", str(PACKAGES / pkg))]
    session.install("--no-deps", *folders)
    session.run("lint-imports", "--no-cache")


@nox.session
@each_package
def minimums(session: nox.Session, pkg: str) -> None:
    """Run a package's tests with the lowest versions it declares (torch's may be a large download), then with the
    oldest release of each sibling that it allows, then those of its own oldest release that allows its siblings as they
    are."""
    for combination in allowed_combinations(session, pkg):
        session.install(*lowest_pins(combination.packages, combination.needed))
        run_combination(session, combination)


@nox.session
@each_package
def siblings(session: nox.Session, pkg: str) -> None:
    """Run a package's tests with the oldest release of each sibling that it allows, then those of its own oldest
    release that allows its siblings as they are; without a release, nothing but a sentence that says so."""
    for combination in allowed_combinations(session, pkg)[1:]:  # `isolated` tests the first, the working tree
        if pkg not in TORCH_FREE:
            install_torch(session)
        suffixes = {
            each: f"[{','.join(sorted(extras))}]" if extras else ""
            for each, extras in combination.needed.items()
        }
        install(session, *(f"{combination.packages[each].path}{suffix}" for each, suffix in suffixes.items()))
        run_combination(session, combination)


def allowed_combinations(session: nox.Session, pkg: str) -> tuple[Combination, ...]:
    """Return the combinations of releases to test a package in, and log those that do not exist."""
    trees = Path(session.create_tmp()) / "releases"
    shutil.rmtree(trees, ignore_errors=True)
    planned = combinations(ROOT, WORKSPACE, pkg, trees.resolve())
    for sentence in planned.missing:
        session.log(sentence)
    return planned.found


def run_combination(session: nox.Session, combination: Combination) -> None:
    """Import the tested package of a combination and run its tests, in an environment that has what they need."""
    session.log("%s: %s", combination.packages[combination.tested].name, combination.text)
    paths = [part for pkg in combination.needed for part in ("-e", str(combination.packages[pkg].path))]
    session.install("--no-deps", *paths)
    tested = combination.packages[combination.tested]
    with session.chdir(combination.tree):
        session.run("python", "-c", f"import {tested.module}")
        session.run("pytest", f"packages/{combination.tested}/tests", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Time every case under eager, Inductor and litz: `nox -s bench -- --help` lists options."""
    install_torch(session)
    install(session, *MODELS, CHARTS)
    install_folders(session, ON_CPUS)
    session.run("python", str(ROOT / "benchmarks" / "run.py"), *session.posargs)


def judge(session: nox.Session, module: str, **environment: str) -> None:
    """Install litz for the CPU and run a module in tests/ that compares it with eager, with the session's arguments."""
    install_folders(session, ON_CPUS)
    path = {"PYTHONPATH": str(ROOT / "tests")}
    session.run("python", "-m", module, *session.posargs, env=path | environment)


@nox.session
def opinfo(session: nox.Session) -> None:
    """Judge litz by PyTorch's operator database: `nox -s opinfo -- --help` lists options."""
    install_torch(session)
    install(session, *OPINFO)
    judge(session, "opinfo")


@nox.session
def zoo(session: nox.Session) -> None:
    """Judge litz by tiny models of the architectures of transformers and timm: `nox -s zoo -- --help` lists options."""
    install_torch(session)
    install(session, *MODELS, *FOR_IMAGES)
    install(session, "--no-deps", *IMAGES)  # torchvision's wheel wants the torch that it was built for
    if "interpreted" in session.posargs:
        install_folders(session, FOLDERS, tested=["codegen-triton", "lowering"])
    judge(session, "zoo", **OFFLINE, **SLEEPING)


@nox.session
def reports(session: nox.Session) -> None:
    """Run public reports of compilers' faults as small programs: `nox -s reports -- --help` lists options."""
    install_torch(session)
    install(session, *FUZZ)
    judge(session, "reports", **SLEEPING)


@nox.session
def ecosystem(session: nox.Session) -> None:
    """Judge litz by programs of other libraries: `nox -s ecosystem -- --help` lists options."""
    install_torch(session)
    for library in LIBRARIES[1:]:  # the first is torch itself
        install(session, *(["--no-deps"] if library.alone else []), *library.wanted)
    judge(session, "ecosystem", **OFFLINE, **SLEEPING)


@nox.session
def upstream(session: nox.Session) -> None:
    """Judge litz by PyTorch's published tests, which apt downloads: `nox -s upstream -- --help` lists options."""
    install_torch(session)
    install(session, *UPSTREAM)
    judge(session, "upstream", OMP_NUM_THREADS="1", **SLEEPING)


@nox.session
def fuzz(session: nox.Session) -> None:
    """Compare generated programs of views and writes with eager: `nox -s fuzz -- --programs 1000 --seed 0`."""
    install_torch(session)
    install(session, *FUZZ)
    judge(session, "differential")


@nox.session
def corpus(session: nox.Session) -> None:
    """Run lowering's tests with every kernel in Triton's interpreter, and compile each of these kernels to a cubin, and
    those of the table of kernel forms (`tests/forms`) at their full sizes.

    That is all of them for sm_90 and one in six for the others, or those of the chips that are named, all or one in
    some: `nox -s corpus -- sm_90 sm_80=6`. Those of three modules are all compiled for sm_90. Other arguments go to
    pytest.
    """
    install_torch(session)
    install_folders(session, FOLDERS, tested=FOLDERS)
    session.install(XDIST)
    sources = Path(session.create_tmp()) / "sources"
    shutil.rmtree(sources, ignore_errors=True)
    sources.mkdir()
    interpreted = {
        "TRITON_INTERPRET": "1",
        "TRITON_INSTEAD_SOURCES": str(sources),
        "PYTHONPATH": str(ROOT / "tests"),
        **SLEEPING,
    }
    # The interpreter computes in NumPy, which warns where eager gives NaN.
    how = ["--quiet", "-W", "ignore::RuntimeWarning", *TWO_AT_A_TIME, *SLOWEST, "-p", "triton_instead"]
    texts = "--ignore=packages/lowering/tests/test_lowering_text.py"  # runs no kernels
    chips = [each for each in session.posargs if each.startswith("sm_")]
    others = [each for each in session.posargs if each not in chips]
    session.run("pytest", *how, *others, texts, "packages/lowering/tests", env=interpreted)
    session.run("python", "-W", "ignore", "-m", "forms", "--sources", str(sources), env=interpreted)
    cubins = str(ROOT / "tests" / "triton_cubins.py")
    # Kernels are scheduled for sm_90; what refuses one of another chip refuses many of them.
    for share in chips or ("sm_90", "sm_80=6", "sm_100=6"):
        chip, _, every = share.partition("=")
        how = ["--chip", chip, "--every", every or "1", "--least", "1500"]
        how += ["--whole", "pad,reduce,view"] if chip == "sm_90" else []
        session.run("python", cubins, str(sources), *how)


@nox.session
def replay(session: nox.Session) -> None:
    """Print which kernels differ between a commit and the working tree, but for names: `nox -s replay -- HEAD`."""
    install_torch(session)
    install_folders(session, FOLDERS, tested=FOLDERS)
    session.install(XDIST)
    session.run("python", "-m", "replay", *session.posargs, env={"PYTHONPATH": str(ROOT / "tests")})


@nox.session
def gpu(session: nox.Session) -> None:
    """Run on an NVIDIA GPU the Triton corpus, the table of kernel forms, generated matmuls, a sample of PyTorch's
    operator database, generated programs, whole models against eager, and, if these are right, the benchmark
    against Inductor; `-- --help` lists options of the last."""
    install_torch(session)
    install(session, *MODELS, *IMAGES, *OPINFO, *FUZZ)
    install_folders(session, FOLDERS, tested=["codegen-triton", "lowering"])
    session.run("python", str(PACKAGES / "codegen-triton" / "tests" / "triton_on_device.py"))
    workers = str(min(16, os.cpu_count() or 1))
    forms = ("--device", "cuda", "--workers", workers, "--out", str(ROOT / "build" / "forms.jsonl"))
    judges = {"PYTHONPATH": str(ROOT / "tests")}
    session.run("python", "-W", "ignore", "-m", "forms", *forms, env=judges)
    session.run("python", "-W", "ignore", str(ROOT / "tests" / "generated_on_device.py"))
    sample = ("--device", "cuda", "--dtypes", "f32", "--modes", "forward,gradient", "--samples", "1")
    session.run("python", "-m", "opinfo", *sample, "--workers", workers, env=judges)
    drawn = ("--device", "cuda", "--programs", "200", "--seed", "600500", "--workers", workers)
    session.run("python", "-m", "differential", *drawn, env=judges)
    session.run("python", "-m", "whole_models", "--device", "cuda", "--fuse-off", env=judges)
    session.run("python", str(ROOT / "benchmarks" / "gpu.py"), *session.posargs)


@nox.session
def models(session: nox.Session) -> None:
    """Judge litz by whole models alone: `nox -s models -- --device cuda --cases resnet50 --modes train`."""
    install_torch(session)
    install(session, *MODELS, *IMAGES)
    install_folders(session, FOLDERS)
    session.run("python", "-m", "whole_models", *session.posargs, env={"PYTHONPATH": str(ROOT / "tests")})


@nox.session
def maths(session: nox.Session) -> None:
    """Judge the vector maths over all floats: `nox -s maths -- --functions exp,log --inputs 2^32`."""
    install_torch(session)
    install_folders(session, with_siblings("codegen-cpp", ["test"]), tested=["codegen-cpp"])
    tests_folder = str(PACKAGES / "codegen-cpp" / "tests")
    session.run("python", "-m", "maths", *session.posargs, env={"PYTHONPATH": tests_folder})


@nox.session
def docs(session: nox.Session) -> None:
    """Build the site into build/docs, with every warning an error, look up every public name in it, and look at its
    pages in Chromium if there is one. Its search needs a server: `python -m http.server --directory build/docs`."""
    session.install(*SITE, RUFF)  # ruff breaks long signatures into lines
    site = str(ROOT / "build" / "docs")
    quiet = {"NO_MKDOCS_2_WARNING": "1"}  # an advertisement
    session.run("mkdocs", "build", "--strict", "--quiet", "--site-dir", site, env=quiet)
    session.run("python", "tools/api_pages.py", "--shown", site)
    session.run("python", "tools/site_layout.py", site)


@nox.session
def build(session: nox.Session) -> None:
    """Build the six wheels and source distributions into dist/."""
    session.install("build")
    shutil.rmtree(ROOT / "dist", ignore_errors=True)
    for pkg in FOLDERS:
        session.run("python", "-m", "build", "--outdir", str(ROOT / "dist"), str(PACKAGES / pkg))
    built = sorted(os.listdir(ROOT / "dist"))
    session.log("built %d files: %s", len(built), ", ".join(built))


@nox.session
def release(session: nox.Session) -> None:
    """Check, build and try the distributions named, or all: `nox -s release -- litz-ir litz-scheduler`. With `--tag`
    tags such as `litz-ir-0.2.0` are made at the end; nothing is uploaded."""
    names = [argument for argument in session.posargs if argument != "--tag"]
    folders = selected(WORKSPACE, names)
    refused = [f"not committed: {line}" for line in uncommitted(ROOT)]
    refused += [sentence for folder in folders for sentence in problems(ROOT, WORKSPACE[folder])]
    if refused:
        session.error("\n".join(["there is no release of this tree:", *refused]))
    session.install("build", "twine>=6.1")
    wheels = build_archives(session, folders)
    others = [pkg for pkg in FOLDERS if pkg not in folders]
    wheels |= build_wheels(session, others) if others else {}
    for folder in folders:
        import_alone(session, folder, wheels)
    if "--tag" in session.posargs:
        for folder in folders:
            package = WORKSPACE[folder]
            tag, text = tag_of(package.name, package.version), f"{package.name} {spelled(package.version)}"
            git(ROOT, "tag", "--annotate", tag, "--message", text)
            session.log("tagged %s", tag)


def build_archives(session: nox.Session, folders: list[str]) -> dict[str, Path]:
    """Build wheels and source distributions into dist/, check what is in them, and return the wheels by folder."""
    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    for folder in folders:
        session.run("python", "-m", "build", "--outdir", str(dist), str(PACKAGES / folder))
    built = {folder: archives(dist, WORKSPACE[folder]) for folder in folders}
    session.run("twine", "check", "--strict", *(str(path) for paths in built.values() for path in paths))
    for folder, paths in built.items():
        if len(paths) != 2:
            session.error(f"{folder}: a wheel and a source distribution were to be built, there are {paths}")
        for path in paths:
            if absent := absent_from(path, WORKSPACE[folder]):
                session.error(f"{path.name} lacks {', '.join(absent)}")
        session.log("%s: licence, README and py.typed are inside", " and ".join(path.name for path in paths))
    return {folder: paths[0] for folder, paths in built.items()}


def import_alone(session: nox.Session, pkg: str, wheels: dict[str, Path]) -> None:
    """Install a wheel and those of the siblings that it needs into an environment of its own, and import it there."""
    package = WORKSPACE[pkg]
    environment = Path(session.create_tmp()) / f"alone-{pkg}"
    shutil.rmtree(environment, ignore_errors=True)
    session.run("python", "-m", "venv", str(environment))
    python = str(environment / "bin" / "python")
    # By their paths, lest an index offers another distribution of a sibling's name.
    files = [str(wheels[folder]) for folder in with_siblings(pkg, [])]
    pip = (python, "-m", "pip", "--quiet")
    session.run(*pip, "install", "--constraint", str(CONSTRAINTS), *files, external=True)
    program = (
        "import importlib.metadata as m; "
        f"import {package.module} as p; from {package.module} import *; "
        f"assert p.__version__ == m.version('{package.name}') == '{spelled(package.version)}'; "
        "found = {d.name for d in m.distributions()} - {'pip', 'setuptools', p.__name__.replace('_', '-')}; "
        "print('imported', p.__name__, p.__version__, 'next to', *sorted(found))"
    )
    session.run(python, "-c", program, external=True)
