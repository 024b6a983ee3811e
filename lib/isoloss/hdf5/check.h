// Turns failures of HDF5 into exceptions, for sources that call it.
#pragma once

#include <hdf5.h>

#include <string_view>

#include "isoloss/hdf5/handle.h"

namespace isoloss::hdf5 {

/// Throws a Failure with the library's reasons, and clears them.
[[noreturn]] void ThrowFailure(const char* call, std::string_view object);

/// HDF5 returns a negative number at every failure.
template <typename Result>
Result Check(Result result, const char* call, std::string_view object = "") {
  if (result < 0) ThrowFailure(call, object);
  return result;
}

}  // namespace isoloss::hdf5
