#include "compare_dumps.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "isoloss/compare/dump_difference.h"
#include "isoloss/compare/error_growth.h"
#include "isoloss/logs/log_files.h"
#include "isoloss/report/dump_json.h"
#include "isoloss/report/dump_text.h"
#include "isoloss/runlog/tensor_dump.h"
#include "json_output.h"

namespace isoloss::cli {

ExitCode CompareDumpFiles(const std::filesystem::path& file_a,
                          const std::filesystem::path& file_b, bool json) {
  const runlog::TensorDump a = logs::OnOneLine(runlog::ReadTensorDump, file_a);
  const runlog::TensorDump b = logs::OnOneLine(runlog::ReadTensorDump, file_b);
  const compare::DumpDifference difference = compare::CompareDumps(a, b);
  const compare::ErrorGrowth growth = compare::MeasureErrorGrowth(a, b);
  if (json) {
    PrintJson(report::DumpComparisonJson(a, b, difference, growth));
  } else {
    fmt::print(
        "A  {}: {}, step {}, {} tensors\nB  {}: {}, step {}, {} tensors\n",
        Printable(file_a.string()), a.run, a.step, a.tensors.size(),
        Printable(file_b.string()), b.run, b.step, b.tensors.size());
    fmt::print("{}", report::RenderDumpDifference(difference));
    const std::string table = report::RenderErrorGrowth(growth);
    fmt::print("{}{}", table.empty() ? "" : "\n", table);
  }
  const bool equal = difference.tensors.empty() && difference.only_a.empty() &&
                     difference.only_b.empty();
  return equal ? ExitCode::kPass : ExitCode::kFail;
}

}  // namespace isoloss::cli
