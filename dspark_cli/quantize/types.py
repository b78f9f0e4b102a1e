"""The file types that llama.cpp's quantiser writes, by the names that its own tool takes.

Source: ``enum llama_ftype`` in llama.cpp ``include/llama.h`` and ``llama_ftype_get_default_type``,
``tensor_requires_imatrix`` in ``src/llama-quant.cpp``. A file type is a mixture: most tensors get
its main type, some a better one.
"""

from dataclasses import dataclass

from dspark_cli.errors import UsageError


@dataclass(frozen=True, slots=True)
class FileType:
    """One file type."""

    name: str
    number: int  # enum llama_ftype
    block: int  # elements of a row that share a scale in the main type; 1 is no quantisation
    needs_imatrix: bool = False  # whether some tensor may be written by its importance alone

    @property
    def quantizes(self) -> bool:
        return self.block > 1


TYPES = {
    entry.name: entry
    for entry in (
        FileType("F32", 0, 1),
        FileType("F16", 1, 1),
        FileType("BF16", 32, 1),
        FileType("Q8_0", 7, 32),
        FileType("Q6_K", 18, 256),
        FileType("Q5_0", 8, 32),
        FileType("Q5_1", 9, 32),
        FileType("Q5_K_S", 16, 256),
        FileType("Q5_K_M", 17, 256),
        FileType("Q4_0", 2, 32),
        FileType("Q4_1", 3, 32),
        FileType("Q4_K_S", 14, 256),
        FileType("Q4_K_M", 15, 256),
        FileType("IQ4_NL", 25, 32),
        FileType("IQ4_XS", 30, 256),
        FileType("MXFP4_MOE", 38, 32),
        FileType("Q3_K_S", 11, 256),
        FileType("Q3_K_M", 12, 256),
        FileType("Q3_K_L", 13, 256),
        FileType("IQ3_S", 26, 256),
        FileType("IQ3_M", 27, 256),
        FileType("IQ3_XS", 22, 256, needs_imatrix=True),
        FileType("IQ3_XXS", 23, 256, needs_imatrix=True),
        FileType("Q2_K", 10, 256),
        FileType("Q2_0", 41, 64),
        FileType("Q2_K_S", 21, 256, needs_imatrix=True),
        FileType("IQ2_M", 29, 256, needs_imatrix=True),
        FileType("IQ2_S", 28, 256, needs_imatrix=True),
        FileType("IQ2_XS", 20, 256, needs_imatrix=True),
        FileType("IQ2_XXS", 19, 256, needs_imatrix=True),
        FileType("TQ2_0", 37, 256),
        FileType("TQ1_0", 36, 256),
        FileType("IQ1_M", 31, 256, needs_imatrix=True),
        FileType("IQ1_S", 24, 256, needs_imatrix=True),
        FileType("Q1_0", 40, 128),
    )
}
ALIASES = {"Q3_K": "Q3_K_M", "Q4_K": "Q4_K_M", "Q5_K": "Q5_K_M"}  # as llama.cpp's tool has them
AT_HAND = tuple(name for name, entry in TYPES.items() if not entry.needs_imatrix)
"""Types that can be written from the file alone, best first."""


def find_type(name: str) -> FileType:
    """The type of that name, however it is capitalised; raises UsageError naming all of them."""
    spelt = name.upper()
    found = TYPES.get(ALIASES.get(spelt, spelt))
    if found is None:
        raise UsageError(f"{name}: is no type to quantise to, wanted one of {', '.join(AT_HAND)}")
    if found.needs_imatrix:
        raise UsageError(
            f"{found.name}: needs an importance matrix, which dspark does not have, wanted one of "
            f"{', '.join(AT_HAND)}"
        )
    return found
