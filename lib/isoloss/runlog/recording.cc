#include "isoloss/runlog/recording.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <sstream>

namespace isoloss::runlog {

std::map<std::string, std::string> KeysOf(const std::string& experiment_text) {
  std::map<std::string, std::string> keys;
  std::map<std::string, size_t> tables;
  std::istringstream lines(experiment_text);
  std::string section;
  for (std::string line; std::getline(lines, line);) {
    const size_t equals = line.find(" = ");
    if (line.starts_with("[[") && line.ends_with("]]")) {
      section = line.substr(2, line.size() - 4);
      section += fmt::format(".{}.", tables[section]++);
    } else if (line.starts_with("[") && line.ends_with("]")) {
      section = line.substr(1, line.size() - 2) + ".";
    } else if (equals != std::string::npos) {
      keys[section + line.substr(0, equals)] = line.substr(equals + 3);
    }
  }
  return keys;
}

Recording::Recording(const Provenance& provenance)
    : keys_(KeysOf(provenance.experiment_text)),
      has_transport_(!provenance.transport.empty() &&
                     provenance.transport != "none"),
      has_routing_(keys_["log.routing"] == "true"),
      has_replay_(keys_["routing.mode"] == "\"replay\""),
      steps_planned_(provenance.steps_planned),
      moe_layers_(std::max<int64_t>(
          0, Number("model.n_layers") - Number("model.n_dense_layers"))),
      experts_(Number("model.num_experts")),
      top_k_(Number("model.top_k")),
      eval_every_(Number("log.eval_every")),
      eval_sequences_(Number("log.eval_sequences")),
      statistics_{Number("log.statistics_first"),
                  Number("log.statistics_every")},
      digests_{Number("log.digests_first"), Number("log.digests_every")} {}

int64_t Recording::Number(const std::string& key) {
  const std::string& text = keys_[key];
  int64_t value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && value >= 0 &&
      value <= kMaxValues) {
    return value;
  }
  missing_keys_ += (missing_keys_.empty() ? "" : ", ") + key;
  return 0;
}

bool Recording::IsDue(When when) const {
  switch (when) {
    case When::kAlways:
      return true;
    case When::kExperts:
      return moe_layers_ > 0;
    case When::kTransport:
    case When::kPairs:
      return has_transport_;
    case When::kDigests:
      return digests_.any();
    case When::kStatistics:
      return statistics_.any();
    case When::kTensors:
      return digests_.any() || statistics_.any();
    case When::kRouting:
      return has_routing_ && moe_layers_ > 0;
    case When::kReplay:
      return has_replay_ && moe_layers_ > 0;
  }
  return true;
}

std::vector<int64_t> Recording::EvaluatedSteps(int64_t last) const {
  std::vector<int64_t> steps = {0};
  for (int64_t step = 1; step <= last; ++step) {
    const bool asked = eval_every_ > 0 && step % eval_every_ == 0;
    if (asked || step == steps_planned_) steps.push_back(step);
  }
  return steps;
}

std::vector<int64_t> Recording::TensorSteps(int64_t last) const {
  std::vector<int64_t> steps;
  for (int64_t step = 1; step <= last; ++step) {
    if (HasStatistics(step) || HasDigests(step)) steps.push_back(step);
  }
  return steps;
}

}  // namespace isoloss::runlog
