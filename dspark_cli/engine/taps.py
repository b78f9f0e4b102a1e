"""The target's taps: hidden states entering some layers, one dense row per batch row."""

from collections.abc import Sequence

import numpy as np

from dspark_cli.engine.context import Context
from dspark_cli.native import ext
from dspark_cli.native.batch import copy_rows


class Taps:
    """Reads the input of ``layers`` for the rows of the context's last batch.

    Rows come for every token, whatever its logits flag, in the batch's order. Layer ids are what
    the drafter's ``dflash.target_layers`` says: inputs of layers, the number of layers meaning
    the final output.
    """

    def __init__(self, context: Context, layers: Sequence[int], width: int) -> None:
        self._context = context
        self._layers = tuple(layers)
        self._width = width
        for layer in self._layers:
            ext.set_embeddings_layer_inp(context.handle, layer, True)

    def read(self, rows: int) -> np.ndarray:
        """The first ``rows`` rows [rows, n_taps x width], the taps side by side in layer order."""
        taps = [
            copy_rows(ext.get_embeddings_layer_inp(self._context.handle, layer), rows, self._width)
            for layer in self._layers
        ]
        return np.concatenate(taps, axis=1) if taps else np.empty((rows, 0), np.float32)
