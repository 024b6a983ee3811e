#include "runlog/sample_log.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "isoloss/runlog/schema.h"

namespace isoloss::runlog {
namespace {

/// Gives every provenance field a value of its own.
class Filler {
 public:
  void Attribute(const Field& field, std::string& value) {
    value = fmt::format("{}: \"größe\"\nline {}", field.name, ++count_);
  }
  void Attribute(const Field&, int64_t& value) {
    value = (int64_t{1} << 40) + ++count_;
  }
  void Attribute(const Field&, double& value) { value = 0.1 * ++count_; }
  void Attribute(const Field&, bool& value) { value = true; }

 private:
  int count_ = 0;
};

std::string Text(int64_t value) { return fmt::to_string(value); }
std::string Text(double value) { return fmt::format("{:.17g}", value); }
std::string Text(bool value) { return value ? "true" : "false"; }
std::string Text(const std::string& value) {
  return nlohmann::json(value).dump();
}

/// Visitor of the schema behind DumpLines.
class Dumper {
 public:
  void Version(const Field& field, int64_t version) {
    Attribute(field, version);
  }
  template <typename T>
  void Attribute(const Field& field, const T& value) {
    lines.push_back(fmt::format("{} = {}", field.name, Text(value)));
  }
  void Group(const char* name, const char* /*description*/) { group_ = name; }
  template <typename T>
  void Column(const Field& field, const std::vector<T>& values) {
    if (!values.empty()) {
      AddDataset(field, fmt::format("{}", values.size()), values);
    }
  }
  void Table(const Field& field, const std::vector<double>& values,
             int64_t width) {
    if (values.empty()) return;
    const size_t rows = values.size() / static_cast<size_t>(width);
    AddDataset(field, fmt::format("{}x{}", rows, width), values);
  }
  template <typename T>
  void Member(const Field& field, const std::vector<Event>& rows,
              T Event::*member) {
    std::vector<T> values;
    for (const Event& row : rows) values.push_back(row.*member);
    Column(field, values);
  }

  std::vector<std::string> lines;

 private:
  template <typename T>
  void AddDataset(const Field& field, const std::string& extent,
                  const std::vector<T>& values) {
    std::vector<std::string> texts;
    for (const T& value : values) texts.push_back(Text(value));
    lines.push_back(fmt::format("{}/{} [{}] {} = {}", group_, field.name,
                                field.unit, extent, fmt::join(texts, " ")));
  }

  std::string group_;
};

}  // namespace

RunLog SampleLog() {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  RunLog log;
  Filler filler;
  VisitProvenance(filler, log.provenance);
  log.provenance.resolved_recipe = std::string(100'000, 'r') + "\nend";
  log.provenance.final_weights_digest = "";
  log.provenance.entropy_floor_nats = kNan;

  for (int64_t step = 1; step <= 5; ++step) {
    const double x = static_cast<double>(step);
    log.steps.Append({.step = step,
                      .tokens_seen = 2048 * step,
                      .loss_nats = 5.0 + 1.0 / (3.0 * x),
                      .grad_norm = 1.0 / x,
                      .lr = 1e-3 * x,
                      .step_seconds = 0.5 + x,
                      .tokens_per_second = 4096.0 / x,
                      .expert_load_max_over_mean = 1.25 * x,
                      .dead_experts = step - 1,
                      .quantized_gemms = 100 * step});
  }
  log.steps.loss_nats[3] = kNan;
  log.steps.grad_norm[4] = kInfinity;
  log.eval = {.step = {0, 5},
              .loss_nats = {5.75, -kInfinity},
              .per_sequence_loss_nats = {5.5, 5.75, 6.0, 4.5, kNan, 0.1},
              .sequences = 3};
  log.events = {{.unix_seconds = 1.7e9 + 0.25, .kind = "start", .text = ""},
                {.unix_seconds = 1.7e9 + 9, .kind = "finish", .text = "5 → ∞"}};
  return log;
}

std::vector<std::string> DumpLines(const RunLog& log) {
  Dumper dumper;
  VisitRunLog(dumper, log);
  std::sort(dumper.lines.begin(), dumper.lines.end());
  return dumper.lines;
}

}  // namespace isoloss::runlog
