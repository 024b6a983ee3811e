// A preset is a named model with the training settings, the mesh and the
// logging that suit it.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/model/config.h"
#include "isoloss/train/config.h"

namespace isoloss::train {

/// `[model] preset` sets these values; the experiment file overrides any of
/// them.
struct Preset {
  std::string name;
  model::ModelConfig model;
  size_t sequence_length = 0;
  TrainConfig train;
  ParallelConfig parallel = {};
  LogConfig log = {};
};

/// Returns all presets, in the order of lists.
std::span<const Preset> AllPresets();
std::vector<std::string> PresetNames();
/// Returns the preset of that name.
/// Errors   ConfigError that lists the names and suggests the nearest.
const Preset& PresetByName(std::string_view name);

}  // namespace isoloss::train
