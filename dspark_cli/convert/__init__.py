"""Make a mainline ``dflash`` GGUF of a drafter that was published in another shape.

A source is read (``fork``, ``checkpoint``), mapped to the keys and tensors of a ``Recipe``, held
against the target (``plan``), written piece by piece, and compared with a forward pass of its own
semantics (``reference``, ``verify``), which shares nothing with the mapping.
"""
