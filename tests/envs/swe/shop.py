"""A tiny package with a fault, as an instance: two modules, six tests, and a Python that has pytest."""

from __future__ import annotations

import importlib.metadata
import shutil
import subprocess
from pathlib import Path

from jaxmtrl.envs.swe.grade import Prepared
from jaxmtrl.envs.swe.instance import SweInstance
from jaxmtrl.envs.swe.patches import make_patch, reverse_patch
from jaxmtrl.envs.swe.sandbox.api import Base

PRICES = '''"""What things cost."""


def total(prices):
    """The sum of prices; none cost 0."""
    return sum(prices)


def discounted(price, percent):
    """The price less some percent of it, never below 0."""
    return max(0, price - price * percent / 100)
'''
BASKET = '''"""What is bought."""

from shop.prices import discounted, total


class Basket:
    def __init__(self):
        self.items = []

    def add(self, name, price):
        self.items.append((name, price))

    def cost(self, percent=0):
        return discounted(total(price for _, price in self.items), percent)
'''
TEST_PRICES = """from shop.prices import discounted, total


def test_total():
    assert total([1, 2]) == 3
    assert total([]) == 0


def test_discount():
    assert discounted(200, 25) == 150


def test_discount_of_all():
    assert discounted(10, 100) == 0


def test_no_discount():
    assert discounted(7, 0) == 7
"""
TEST_BASKET = """from shop.basket import Basket


def test_empty():
    assert Basket().cost() == 0


def test_cost():
    basket = Basket()
    basket.add("tea", 100)
    basket.add("cake", 60)
    assert basket.cost(25) == 120
"""
FAULTY = PRICES.replace("price - price * percent / 100", "price + price * percent / 100")
FIX = make_patch({"shop/prices.py": FAULTY}, {"shop/prices.py": PRICES})
TESTS = {"tests/test_prices.py": TEST_PRICES.encode(), "tests/test_basket.py": TEST_BASKET.encode()}
FAIL = (
    "tests/test_prices.py::test_discount",
    "tests/test_prices.py::test_discount_of_all",
    "tests/test_basket.py::test_cost",
)
PASS = (
    "tests/test_prices.py::test_total",
    "tests/test_prices.py::test_no_discount",
    "tests/test_basket.py::test_empty",
)
INSTANCE = SweInstance(
    id="shop-1__arith-0001",
    repo="pypi/shop",
    problem_statement="A basket costs more with a discount than without one.",
    fail_to_pass=FAIL,
    pass_to_pass=PASS,
    patch=FIX,
    bug_patch=reverse_patch(FIX),
    test_files=tuple(TESTS),
    hidden_files=tuple(TESTS),
    source="injected",
    extra={"kind": "arith"},
)
_PACKAGES = ("pytest", "pluggy", "iniconfig", "packaging", "pygments")


def write_tree(folder: Path, *, tests: bool = False) -> Path:
    """The package with its fault, for anyone to read."""
    files = {"shop/__init__.py": "", "shop/prices.py": FAULTY, "shop/basket.py": BASKET, "README.md": "A shop.\n"}
    files |= {path: content.decode() for path, content in TESTS.items()} if tests else {}
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(content)
    _open_up(folder)
    return folder


def make_venv(folder: Path) -> Path:
    """An environment of the system's Python with the pytest that runs these tests."""
    subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", folder], check=True)
    site = next((folder / "lib").glob("python3*")) / "site-packages"
    for name in _PACKAGES:
        for file in importlib.metadata.files(name) or ():
            if file.suffix == ".py" and ".." not in file.parts:
                (site / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(str(file.locate()), site / file)
    subprocess.run(["/usr/bin/python3", "-m", "compileall", "-qq", site], check=True)
    _open_up(folder)
    return folder


def prepared(folder: Path, venv: Path, *, tests: bool = False) -> Prepared:
    return Prepared(base=Base(tree=write_tree(folder, tests=tests), venv=venv), tests=TESTS)


def _open_up(folder: Path) -> None:
    for place in (*folder.parents, folder, *folder.rglob("*")):
        if place.is_relative_to("/tmp") and place != Path("/tmp") and not place.is_symlink():
            place.chmod(place.stat().st_mode | (0o755 if place.is_dir() else 0o444))
