// Losses of a design whose harms are known.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "isoloss/sites/additive_model.h"

namespace isoloss::sites {

/// Uniform in [-1, 1), a function of its arguments (splitmix64).
inline double Noise(uint64_t stream, uint64_t index) {
  uint64_t z = stream * 0x9e3779b97f4a7c15ULL + index + 1;
  z *= 0x9e3779b97f4a7c15ULL;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  z ^= z >> 31;
  return static_cast<double>(z >> 11) * 0x1p-52 - 1;
}

/// 3 nats, a spread of 0.05 that the arms of a seed share, and for each run
/// `noise` times a uniform number.
inline ArmLosses PlantedArm(const std::string& name, std::vector<size_t> pieces,
                            const std::vector<double>& harms, double noise,
                            size_t seeds, uint64_t stream) {
  ArmLosses arm{.name = name, .pieces = std::move(pieces)};
  for (size_t seed = 0; seed < seeds; ++seed) {
    double loss = 3 + 0.05 * Noise(7, seed) + noise * Noise(stream, seed);
    for (const size_t piece : arm.pieces) loss += harms[piece];
    arm.losses.push_back(loss);
  }
  return arm;
}

/// Baseline, all, each alone, all but each; at most 498 pieces.
inline std::vector<ArmLosses> PlantedDesign(const std::vector<double>& harms,
                                            double noise, size_t seeds,
                                            uint64_t draw = 1) {
  std::vector<size_t> all;
  for (size_t piece = 0; piece < harms.size(); ++piece) all.push_back(piece);
  uint64_t stream = 1000 * draw;
  std::vector<ArmLosses> arms;
  const auto add = [&](const std::string& name, std::vector<size_t> pieces) {
    arms.push_back(
        PlantedArm(name, std::move(pieces), harms, noise, seeds, ++stream));
  };
  add("base", {});
  add("all", all);
  for (const size_t piece : all) {
    add("only-" + std::to_string(piece), {piece});
  }
  for (const size_t piece : all) {
    std::vector<size_t> others = all;
    std::erase(others, piece);
    add("all_but-" + std::to_string(piece), others);
  }
  return arms;
}

}  // namespace isoloss::sites
