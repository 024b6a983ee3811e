// Computes what other quantisations would make of dumped tensors.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/document/document.h"
#include "isoloss/runlog/tensor_dump.h"

namespace isoloss::inspection {

/// A row belongs to one tensor in one direction. NaN means the same as in a run
/// log.
struct WhatIfRow {
  std::string tensor;
  std::string format;  ///< the description, in full
  bool columnwise = false;
  double sqnr_db = 0;
  double mse = 0;
  double underflows_percent = 0;
  double saturated_percent = 0;
};

/// Returns statistics of the dumped tensors that `wants` (empty: all), under
/// each description, with the dump's segments. Random bits come from seed 0.
/// Errors   ConfigError if a name is none of formats::QuantizationByName, or
///          looks back at steps, which a dump lacks.
std::vector<WhatIfRow> WhatIf(
    const runlog::TensorDump& dump, const std::vector<std::string>& formats,
    const std::function<bool(std::string_view)>& wants);

/// Makes a table for each tensor.
document::Document WhatIfDocument(const std::vector<WhatIfRow>& rows);

}  // namespace isoloss::inspection
