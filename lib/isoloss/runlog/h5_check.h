// Turns failures of HDF5 into exceptions, for sources that call it.
#pragma once

#include <hdf5.h>

#include <string_view>

#include "isoloss/runlog/h5_handle.h"

namespace isoloss::runlog::h5 {

/// Throws a Failure with the library's reasons, and clears them.
[[noreturn]] void ThrowFailure(const char* call, std::string_view object);

/// HDF5 returns a negative number at every failure.
template <typename Result>
Result Check(Result result, const char* call, std::string_view object = "") {
  if (result < 0) ThrowFailure(call, object);
  return result;
}

}  // namespace isoloss::runlog::h5
