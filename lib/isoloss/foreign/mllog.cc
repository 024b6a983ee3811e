// MLPerf's training logs: mlcommons/logging, mlperf_logging/mllog. What stands
// before ":::MLLOG" on a line is dropped, as the official parser does.
//   :::MLLOG {"namespace": "", "key": "eval_accuracy", "value": 0.94, ...}
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>

#include "isoloss/foreign/json.h"
#include "isoloss/foreign/line_format.h"
#include "isoloss/foreign/text.h"

namespace isoloss::foreign {
namespace {

using nlohmann::json;

constexpr std::string_view kToken = ":::MLLOG";

/// Benchmarks whose eval_accuracy is a loss; of the others it is an accuracy.
constexpr std::string_view kLossBenchmarks[] = {"gpt3", "llama2_70b_lora",
                                                "llama31_8b", "llama31_405b"};

class Reader : public LineReader {
 public:
  Reader() { run().step_unit = "sample"; }

  bool Read(std::string_view line) override {
    const size_t at = line.find(kToken);
    if (at == std::string_view::npos) return false;
    const json entry = ParseJson(line.substr(at + kToken.size()));
    if (!entry.is_object() || !entry.contains("key") ||
        !entry["key"].is_string() || !entry.contains("value")) {
      ++broken_;
      return true;
    }
    const json none = json::object();
    const json& metadata =
        entry.contains("metadata") && entry["metadata"].is_object()
            ? entry["metadata"]
            : none;
    Keep(entry["key"].get_ref<const std::string&>(), entry["value"], metadata);
    return true;
  }

  void Finish() override {
    const bool is_loss = std::ranges::count(kLossBenchmarks, benchmark_) != 0;
    for (Series& series : run().series) {
      if (series.name != "eval_accuracy" || !is_loss) continue;
      series.quantity = Quantity::kEvalLoss;
    }
    if (benchmark_.empty()) {
      run().notes.emplace_back(
          "The log does not name its benchmark, so nobody can tell whether "
          "eval_accuracy is a loss or an accuracy.");
    } else {
      run().notes.push_back(
          fmt::format("The benchmark is {}, so eval_accuracy is {}.",
                      benchmark_, is_loss ? "a loss" : "an accuracy"));
    }
    if (!status_.empty() && status_ != "success") {
      run().notes.push_back(
          fmt::format("The run says that it ended with status {}.", status_));
    }
    if (broken_ > 0) {
      run().notes.push_back(fmt::format(
          "{} lines with {} hold no JSON object with a key and a value. They "
          "were left out.",
          broken_, kToken));
    }
    run().notes.emplace_back(
        "A run stops when it reaches its target, so its last value is selected "
        "and tells nothing.");
  }

 private:
  void Keep(const std::string& key, const json& value, const json& metadata) {
    if (key == "seed") {
      run().seed = WholeOf(value);
    } else if (key == "submission_benchmark" && value.is_string()) {
      benchmark_ = value.get<std::string>();
    } else if (key == "run_stop" && metadata.contains("status") &&
               metadata["status"].is_string()) {
      status_ = metadata["status"].get<std::string>();
    } else if (key == "tracked_stats" && value.is_object()) {
      for (const auto& [name, one] : value.items()) {
        KeepValue(name, one, metadata);
      }
    } else if (key == "train_loss" || key == "eval_accuracy" ||
               key == "eval_loss" || key == "grad_norm") {
      KeepValue(key, value, metadata);
    }
  }

  void KeepValue(const std::string& name, const json& value,
                 const json& metadata) {
    const auto number = NumberOf(value);
    if (!number) return;
    for (const char* axis : {"samples_count", "epoch_num", "step"}) {
      if (!metadata.contains(axis)) continue;
      const auto at = WholeOf(metadata[axis]);
      // A fraction of an epoch is no place that another run shares.
      if (!at || *at < 0) continue;
      AddShortest(run().Of(name), *at, *number);
      return;
    }
    ++broken_;
  }

  std::string benchmark_;
  std::string status_;
  int64_t broken_ = 0;
};

}  // namespace

extern const LineFormat kLineFormat_mllog = {
    "mllog", "an MLPerf log",
    [] { return std::unique_ptr<LineReader>(std::make_unique<Reader>()); }};

}  // namespace isoloss::foreign
