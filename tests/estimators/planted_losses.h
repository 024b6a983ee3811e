// Losses of a design whose harms are known.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "isoloss/estimators/additive_model.h"

namespace isoloss::estimators {

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
inline ArmLosses PlantedArm(const std::string& name,
                            std::vector<size_t> products,
                            const std::vector<double>& harms, double noise,
                            size_t seeds, uint64_t stream) {
  ArmLosses arm{.name = name, .products = std::move(products)};
  for (size_t seed = 0; seed < seeds; ++seed) {
    double loss = 3 + 0.05 * Noise(7, seed) + noise * Noise(stream, seed);
    for (const size_t product : arm.products) loss += harms[product];
    arm.losses.push_back(loss);
  }
  return arm;
}

/// Baseline, all, each alone, all but each; at most 498 products.
inline std::vector<ArmLosses> PlantedDesign(const std::vector<double>& harms,
                                            double noise, size_t seeds,
                                            uint64_t draw = 1) {
  std::vector<size_t> all;
  for (size_t product = 0; product < harms.size(); ++product)
    all.push_back(product);
  uint64_t stream = 1000 * draw;
  std::vector<ArmLosses> arms;
  const auto add = [&](const std::string& name, std::vector<size_t> products) {
    arms.push_back(
        PlantedArm(name, std::move(products), harms, noise, seeds, ++stream));
  };
  add("base", {});
  add("all", all);
  for (const size_t product : all) {
    add("only-" + std::to_string(product), {product});
  }
  for (const size_t product : all) {
    std::vector<size_t> others = all;
    std::erase(others, product);
    add("all_but-" + std::to_string(product), others);
  }
  return arms;
}

}  // namespace isoloss::estimators
