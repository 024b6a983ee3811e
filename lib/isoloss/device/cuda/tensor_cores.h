// Says how the tensor cores of NVIDIA's GPUs add products of BF16 factors.
#pragma once

#include <string>

#include "isoloss/kernels/accumulator.h"

namespace isoloss::device {

/// Returns the accumulator of a compute capability's mma.sync of BF16, or null
/// if nobody has told how it adds.
const kernels::Accumulator* AccumulatorOfMma(int major, int minor);

/// Says why a GPU with that name does not add as an accumulator does, and what
/// to change; "" if it does.
std::string WrongAdder(const std::string& name, int major, int minor,
                       const kernels::Accumulator& accumulator);

}  // namespace isoloss::device
