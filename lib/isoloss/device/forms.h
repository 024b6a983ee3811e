// DeviceExecutor::FormOf knows the forms of all kernels that run on a device.
// Whoever instantiates it for a target includes this file.
#pragma once

#include "isoloss/device/causal_forms.h"
#include "isoloss/device/digest_forms.h"
#include "isoloss/device/executor.h"
#include "isoloss/device/form_table.h"
#include "isoloss/device/gemm_forms.h"
#include "isoloss/device/model_forms.h"
#include "isoloss/device/row_forms.h"
#include "isoloss/device/travel_forms.h"

namespace isoloss::device {

template <typename Target>
Forms AllForms() {
  Forms forms;
  AddRowForms<Target>(forms);
  AddGemmForms<Target>(forms);
  AddModelForms<Target>(forms);
  AddCausalForms<Target>(forms);
  AddTravelForms<Target>(forms);
  AddDigestForms<Target>(forms);
  return forms;
}

template <typename Target>
ErasedKernel DeviceExecutor<Target>::FormOf(ErasedKernel kernel) const {
  static const Forms forms = AllForms<Target>();
  const auto found = forms.find(kernel);
  return found == forms.end() ? nullptr : found->second;
}

}  // namespace isoloss::device
