// A run log in which no two fields are alike, and a text form that shows every
// field, for tests of what comes back from disk.
#pragma once

#include <string>
#include <vector>

#include "isoloss/runlog/run_log.h"

namespace isoloss::runlog {

/// Five steps, two evaluations of three sequences, parameters, tensors, routing
/// and exchange of a few steps, two events; NaN and infinity among the values,
/// UTF-8, line ends and a text of more than 64 KiB.
RunLog SampleLog();

/// What `step` adds to SampleLog(): its rows, the events with the first one,
/// and the bytes of pairs with the last step that has an exchange.
RunLog SampleRows(int64_t step);

/// One line `path [unit] type extent = values` per attribute and dataset, in
/// the order of their names. Empty columns do not appear. The form is that of
/// read_with_h5py.py.
std::vector<std::string> DumpLines(const RunLog& log);

}  // namespace isoloss::runlog
