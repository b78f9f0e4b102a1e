"""``mask_embedding.pt``: a vector that replaces the mask token's embedding.

PyTorch's file is a zip of a pickle and raw numbers. The pickle names functions to be called; here
it may name the two that rebuild a tensor, and nothing else is ever imported or called.
"""

import io
import pickle
import pickletools
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dspark_cli.errors import DsparkError

NAME = "mask_embedding.pt"
LONGEST_PICKLE = 64 * 2**10  # bytes; a dictionary of a number and a tensor takes 300
STORAGES = {"FloatStorage": "<f4", "HalfStorage": "<f2", "BFloat16Storage": "<u2"}


def read_mask_embedding(folder: Path, mask: int, width: int) -> np.ndarray | None:
    """The vector, float32 [width], or None where there is no such file; raises DsparkError."""
    path = folder / NAME
    if not path.exists():
        return None
    try:
        found = _load(path)
    except DsparkError:
        raise
    except Exception as error:  # noqa: BLE001  what is no pickle fails in any way
        raise DsparkError(f"{path}: cannot be read: {str(error)[:120] or 'damaged'}") from None
    if not isinstance(found, dict) or found.get("mask_token_id") != mask:
        raise DsparkError(f"{path}: is not for the mask token {mask}, which the config names")
    vector = found.get("embedding")
    if not isinstance(vector, np.ndarray) or vector.shape != (width,):
        shape = getattr(vector, "shape", "none")
        raise DsparkError(f"{path}: embedding has shape {shape}, wanted ({width},)")
    return vector


def _load(path: Path) -> object:
    with zipfile.ZipFile(path) as archive:
        (record,) = [name for name in archive.namelist() if name.endswith("/data.pkl")]
        if archive.getinfo(record).file_size > LONGEST_PICKLE:
            raise DsparkError(f"{path}: its pickle is larger than {LONGEST_PICKLE} bytes")
        raw = archive.read(record)
        for operation, argument, _ in pickletools.genops(raw):
            # The memo is an array as long as its largest index.
            if "PUT" in operation.name and int(argument or 0) > LONGEST_PICKLE:
                raise DsparkError(f"{path}: its pickle is damaged")
        return _Tensors(raw, archive, record.removesuffix("data.pkl")).load()


@dataclass(frozen=True, slots=True)
class _Storage:
    values: np.ndarray


def _rebuild(
    storage: _Storage, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_rest: object
) -> np.ndarray:
    """``torch._utils._rebuild_tensor_v2`` of a vector."""
    if len(size) != 1 or stride != (1,) or offset < 0 or offset + size[0] > len(storage.values):
        raise ValueError(f"a tensor of shape {size}, wanted a vector")
    return storage.values[offset : offset + size[0]]


class _Tensors(pickle.Unpickler):
    """Reads numbers, texts, dictionaries and vectors; any other name is refused."""

    def __init__(self, raw: bytes, archive: zipfile.ZipFile, folder: str) -> None:
        super().__init__(io.BytesIO(raw))
        self._archive = archive
        self._folder = folder

    def find_class(self, module: str, name: str) -> Callable[..., object] | str:
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _rebuild
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if module == "torch" and name in STORAGES:
            return name
        raise ValueError(f"it names {module}.{name}, which no vector needs")

    def persistent_load(self, pid: tuple[object, ...]) -> _Storage:
        _, kind, key, _, count = pid
        record = f"{self._folder}data/{key}"
        dtype = np.dtype(STORAGES[str(kind)])
        if not isinstance(count, int) or self._archive.getinfo(record).file_size > 2**24:
            raise ValueError("its storage is too large for a vector")
        values = np.frombuffer(self._archive.read(record), dtype)[:count]
        if dtype == np.uint16:  # bfloat16: the upper half of a float
            values = (values.astype(np.uint32) << 16).view(np.float32)
        return _Storage(values.astype(np.float32))
