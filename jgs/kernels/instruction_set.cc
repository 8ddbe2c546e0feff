// A function for Python: it is not called by XLA.
#include "isa.h"

// The number of the instruction set that the kernels use, see `jgs::Isa`.
extern "C" int JgsInstructionSet() { return static_cast<int>(jgs::BestIsa()); }
