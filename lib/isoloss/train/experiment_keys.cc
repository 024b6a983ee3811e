#include "isoloss/train/experiment_keys.h"

#include <algorithm>
#include <map>

#include "isoloss/runlog/recording.h"
#include "isoloss/train/experiment_sections.h"

namespace isoloss::train {
namespace {

/// Adds the keys of `section` that are not listed yet.
template <typename Section>
void Append(std::vector<ExperimentKey>& keys, const std::string& name,
            const Section& section) {
  const config::Document empty("", "");
  config::Reader reader(empty);
  config::Writer writer;
  Section copy = section;
  Visit(reader, copy);
  Visit(writer, copy);
  std::map<std::string, std::string> values = runlog::KeysOf(writer.text());
  for (const std::string& key : reader.known()) {
    const bool listed =
        std::any_of(keys.begin(), keys.end(), [&](const ExperimentKey& other) {
          return other.section == name && other.name == key;
        });
    if (!listed) keys.push_back({name, key, values[key]});
  }
}

}  // namespace

std::string ExperimentKey::Dotted() const {
  return section.empty() ? name : section + "." + name;
}

std::vector<ExperimentKey> ExperimentKeys() {
  std::vector<ExperimentKey> keys = {{"", "name", ""},
                                     {"model", "preset", ""},
                                     {"arms.NAME", "sites", ""},
                                     {"arms.NAME", "then", ""}};
  Append(keys, "model", ModelConfig());
  for (const std::string& source : kSources) {
    DataConfig data;
    data.source = source;
    Append(keys, "data", data);
  }
  Append(keys, "train", TrainConfig());
  Append(keys, "log", LogConfig());
  Append(keys, "parallel", ParallelConfig());
  for (const Named<RoutingMode>& mode : kRoutingModes) {
    RoutingConfig routing;
    routing.mode = mode.value;
    Append(keys, "routing", routing);
  }
  Append(keys, "arms.NAME", Arm());
  Append(keys, "arms.NAME", Arm{.perturb = Perturb::kOneUlp});
  Append(keys, "gate", GateConfig());
  Append(keys, "tuning", TuningConfig());
  Append(keys, "tuning.scaled", ScaledTuningConfig());
  // A required key has no default, though the writer has a value for it.
  for (ExperimentKey& key : keys) {
    if (key.default_value == "\"\"") key.default_value.clear();
    if (key.name == "source" || key.name == "paths") key.default_value.clear();
  }
  return keys;
}

const std::vector<std::string>& ExperimentKeyNames() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const ExperimentKey& key : ExperimentKeys()) {
      names.push_back(key.Dotted());
    }
    return names;
  }();
  return kNames;
}

}  // namespace isoloss::train
