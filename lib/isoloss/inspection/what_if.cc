#include "isoloss/inspection/what_if.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/base/executor.h"
#include "isoloss/formats/quantization.h"
#include "isoloss/probes/tensor_accumulator.h"

namespace isoloss::inspection {
namespace {

formats::Quantization DescriptionOf(const std::string& name) {
  const formats::Quantization quantization = formats::QuantizationByName(name);
  if (!quantization.reads_history()) return quantization;
  ThrowError(ErrorKind::kConfig,
             "what if `{}`: its scales follow from steps before, of which a "
             "dump of one step tells nothing. Give a description with current "
             "scaling.",
             name);
}

void AppendRows(const runlog::DumpedTensor& dumped,
                const formats::Quantization& quantization, Executor& executor,
                std::vector<WhatIfRow>& rows) {
  const std::vector<size_t> ends(dumped.segment_ends.begin(),
                                 dumped.segment_ends.end());
  model::Tensor tensor = {
      .values = {dumped.values.data(), static_cast<size_t>(dumped.rows),
                 static_cast<size_t>(dumped.cols)},
      .rowwise = &quantization,
      .columnwise = &quantization};
  tensor.rows.segment_ends = ends;
  probes::TensorAccumulator accumulator;
  accumulator.Add(tensor, executor);
  const auto statistics = accumulator.Finish().values;
  for (const bool columnwise : {false, true}) {
    const auto stat = [&](size_t rowwise, size_t down) {
      return statistics[columnwise ? down : rowwise];
    };
    rows.push_back(
        {dumped.name, formats::QuantizationName(quantization), columnwise,
         stat(runlog::kStat_sqnr, runlog::kStat_sqnr_columnwise),
         stat(runlog::kStat_mse, runlog::kStat_mse_columnwise),
         stat(runlog::kStat_underflows, runlog::kStat_underflows_columnwise),
         stat(runlog::kStat_saturated, runlog::kStat_saturated_columnwise)});
  }
}

}  // namespace

std::vector<WhatIfRow> WhatIf(
    const runlog::TensorDump& dump, const std::vector<std::string>& formats,
    const std::function<bool(std::string_view)>& wants) {
  std::vector<formats::Quantization> descriptions;
  for (const std::string& name : formats) {
    descriptions.push_back(DescriptionOf(name));
  }
  Executor executor(1);
  std::vector<WhatIfRow> rows;
  for (const runlog::DumpedTensor& tensor : dump.tensors) {
    if (tensor.kind == "expert_ids" || (wants && !wants(tensor.name))) continue;
    for (const formats::Quantization& quantization : descriptions) {
      AppendRows(tensor, quantization, executor, rows);
    }
  }
  return rows;
}

document::Document WhatIfDocument(const std::vector<WhatIfRow>& rows) {
  document::Document document;
  std::string_view tensor;
  document.PutEach("what_if", rows, [&](const WhatIfRow& row) {
    document::Document of;
    of.Put("tensor", row.tensor);
    of.Put("format", row.format);
    of.Put("along", row.columnwise ? "columns" : "rows");
    of.Put("sqnr_db", row.sqnr_db);
    of.Put("mse", row.mse);
    of.Put("underflows%", row.underflows_percent);
    of.Put("saturated%", row.saturated_percent);
    if (row.tensor != tensor) {
      of.Say(row.tensor);
      of.Say(
          fmt::format("  {:>9} {:>11} {:>11} {:>11}  along    if quantised as",
                      "sqnr_db", "mse", "underflows%", "saturated%"));
    }
    tensor = row.tensor;
    of.Say(fmt::format("  {:>9.4g} {:>11.4g} {:>11.4g} {:>11.4g}  {:<7}  {}",
                       row.sqnr_db, row.mse, row.underflows_percent,
                       row.saturated_percent,
                       row.columnwise ? "columns" : "rows", row.format));
    return of;
  });
  return document;
}

}  // namespace isoloss::inspection
