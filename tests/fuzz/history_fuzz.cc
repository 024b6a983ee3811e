// Any bytes as a history of figures: refused with an Error, or records that can
// be written and read again, followed and drawn.
#include <string>
#include <vector>

#include "fuzz/entry_point.h"
#include "isoloss/base/error.h"
#include "isoloss/compare/figure_history.h"
#include "isoloss/report/history.h"
#include "isoloss/report/history_file.h"

namespace {

using namespace isoloss;  // NOLINT(google-build-using-namespace)

compare::FigureRecord Record(int64_t seed, double loss) {
  compare::FigureRecord record = {.commit = loss < 2 ? "abcdef0" : "abcdef1",
                                  .date = "2026-11-24T12:00:00+01:00",
                                  .experiment = "tiny",
                                  .arm = "bf16",
                                  .seed = seed,
                                  .steps = 20,
                                  .window = 4};
  record.figures[compare::kLossFigure] = loss;
  return record;
}

void Draw(const std::vector<compare::FigureRecord>& records) {
  report::History history;
  for (const compare::FigureRecord& record : records) {
    if (history.commits.empty() || history.commits.back() != record.commit) {
      history.commits.push_back(record.commit);
    }
  }
  for (size_t i = 0; i < compare::kFigureCount; ++i) {
    compare::FigureSeries series = compare::FollowFigure(
        records, history.commits, records.front().arm, i, {});
    if (!series.points.empty()) history.series.push_back(std::move(series));
  }
  if (history.series.empty()) return;
  ISOLOSS_ASSERT(!report::RenderHistory(history, true, {}).empty());
  ISOLOSS_ASSERT(!report::RenderHistorySvg(history).empty());
  ISOLOSS_ASSERT(!report::RenderHistoryJson(history).empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    const auto records = report::ParseHistory(text, "history.jsonl");
    std::string again;
    for (const compare::FigureRecord& record : records) {
      again += report::HistoryLine(record) + "\n";
    }
    ISOLOSS_ASSERT(report::ParseHistory(again, "history.jsonl") == records);
    if (!records.empty()) Draw(records);
  } catch (const Error& error) {
    ISOLOSS_ASSERT(error.kind() == ErrorKind::kFormat);
  }
  return 0;
}

std::vector<std::string> FuzzSeeds() {
  std::string text;
  for (const double loss : {1.5, 2.5}) {
    for (int64_t seed = 1; seed <= 3; ++seed) {
      text += report::HistoryLine(Record(seed, loss)) + "\n";
    }
  }
  return {text, report::HistoryLine(Record(1, 1.0 / 3))};
}
