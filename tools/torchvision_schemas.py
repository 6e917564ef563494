"""Lets a torchvision whose native library does not load be imported all the same.

`tools/setup_env.py` copies this file into a virtual environment, beside a `.pth` file that imports
it in every interpreter, where a CPU build of torch meets a CUDA build of torchvision. There
`import torchvision` fails with "operator torchvision::nms does not exist": the native library
declares the operators, and torchvision registers shapes for two of them while it is imported.
Declaring just those two is enough for its image transforms, which are plain torch. Calling one of
the operators still fails, as it should.

An interpreter that never imports torchvision pays for one finder object and nothing else: torch is
imported only once torchvision is.
"""

from __future__ import annotations

import sys

# Spelled out: typing would add milliseconds to the start of every interpreter.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

_DECLARED = ("nms", "qnms")
_SIGNATURE = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"

# A torch.library.Library takes its declarations back when it is collected.
_libraries: list[Any] = []


def _native_library_loads(folders: Sequence[str]) -> bool:
    """Say whether torchvision's native library loads beside the installed torch.

    Args:
        folders: The folders of the torchvision package.
    """
    from importlib.machinery import PathFinder

    import torch

    spec = PathFinder.find_spec("_C", folders)
    if spec is None or spec.origin is None:
        return False
    try:
        torch.ops.load_library(spec.origin)
    except (ImportError, OSError):
        return False
    return True


def _declare_missing_operators(folders: Sequence[str]) -> None:
    """Declare the two operators unless the native library does.

    Args:
        folders: The folders of the torchvision package.
    """
    if _native_library_loads(folders):
        return
    import torch

    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in _DECLARED:
        if not hasattr(torch.ops.torchvision, name):
            library.define(name + _SIGNATURE)
    _libraries.append(library)


class _TorchvisionFinder:
    """Finds torchvision as usual, and declares the operators just before its body runs."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        """Return torchvision's own spec with a prepared loader; nothing for any other name."""
        if name != "torchvision":
            return None
        from importlib.machinery import PathFinder

        spec = PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return spec
        run_body = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            _declare_missing_operators(list(module.__path__))
            run_body(module)

        # On the instance: the loader keeps its type, which resource readers and inspect look at.
        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, _TorchvisionFinder())
