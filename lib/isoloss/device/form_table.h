// A table says which form a device has of a kernel.
#pragma once

#include <map>

#include "isoloss/base/executor.h"

namespace isoloss::device {

/// Maps kernels to forms, which have their types.
using Forms = std::map<ErasedKernel, ErasedKernel>;

template <typename... Parameters>
void AddForm(void (*kernel)(Parameters...), void (*form)(Parameters...),
             Forms& forms) {
  forms.emplace(reinterpret_cast<ErasedKernel>(kernel),
                reinterpret_cast<ErasedKernel>(form));
}

}  // namespace isoloss::device
