// For sources that call HDF5: its failures as exceptions.
#pragma once

#include <hdf5.h>

#include <string_view>

#include "isoloss/runlog/h5_handle.h"

namespace isoloss::runlog::h5 {

/// Throws a Failure with the library's reasons, and clears them.
[[noreturn]] void ThrowFailure(const char* call, std::string_view object);

/// HDF5 reports every failure as a negative number.
template <typename Result>
Result Check(Result result, const char* call, std::string_view object = "") {
  if (result < 0) ThrowFailure(call, object);
  return result;
}

}  // namespace isoloss::runlog::h5
