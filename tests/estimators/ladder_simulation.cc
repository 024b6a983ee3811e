// Prints how often `isoloss study ladder` calls an arm safe whose law is known,
// as the table of docs/studies.md.
//
//   build/release/bin/ladder_simulation [LADDERS]     (default: 10000)

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "isoloss/estimators/size_text.h"
#include "simulated_ladder.h"

namespace isoloss::estimators {
namespace {

constexpr double kMargin = 0.25;
constexpr size_t kSeeds[] = {8, 16, 32};

struct Row {
  std::string name;
  double at_target;  ///< true gap there, percent
  RelativeLaw law;
  SeedNoise noise = SeedNoise::kNormal;
  double spread_growth = 1;
};

/// A gap that begins at 1e10 tokens.
double Late(const Size& size) {
  return 0.5 * (1 - std::exp(-std::max(0.0, size.tokens / 1e10 - 1)));
}
double Saturating(const Size& size) {
  return 0.5 * (1 - std::exp(-size.tokens / 1e9));
}
double Step(const Size& size) {
  return size.ActiveParameters() > 2e9 ? 0.5 : 0;
}
double Fading(const Size& size) {
  return 0.2 * std::pow(size.parameters / 0.34e6, -0.34);
}
/// The harm needs a rate below a tenth of the highest. Rungs that end at a
/// tenth see a tenth of it.
double CoolDown(const Size& size) { return size.tokens > 1e10 ? 0.5 : 0.05; }

RelativeLaw Of(double (*law)(const Size&)) {
  return [law](const Size& size, std::mt19937_64&) { return law(size); };
}

/// Each size has a rate that is off by another factor, and so has its gap: a
/// log-normal number of mean 1 (standard deviation of its logarithm: log 1.5).
RelativeLaw WrongRates(double percent) {
  return [percent](const Size&, std::mt19937_64& random) {
    const double spread = std::log(1.5);
    const double z = std::normal_distribution<double>()(random);
    return percent * std::exp(spread * z - spread * spread / 2);
  };
}

std::vector<Row> Rows(const std::vector<Size>& sizes, const Size& target) {
  const RelativeLaw grows = LineLaw(sizes, 0, target, kMargin);
  const RelativeLaw falls = LineLaw(sizes, 2 * kMargin, target, kMargin);
  return {
      {"none", 0, EverywhereLaw(0)},
      {"none, t3 seeds", 0, EverywhereLaw(0), SeedNoise::kStudentT3},
      {"0.05 % everywhere", 0.05, EverywhereLaw(0.05)},
      {"0.1 % everywhere", 0.1, EverywhereLaw(0.1)},
      {"0.1 % everywhere, t3 seeds", 0.1, EverywhereLaw(0.1),
       SeedNoise::kStudentT3},
      {"0.5 % everywhere", 0.5, EverywhereLaw(0.5)},
      {"0.5 % everywhere, t3 seeds", 0.5, EverywhereLaw(0.5),
       SeedNoise::kStudentT3},
      {"fading, 0.2 % in the smallest size", Fading(target), Of(Fading)},
      {"a line that grows to the margin", kMargin, grows},
      {"the same, t3 seeds", kMargin, grows, SeedNoise::kStudentT3},
      {"the same, spread 4 times as large at the top", kMargin, grows,
       SeedNoise::kNormal, 4},
      {"the same, spread a quarter at the top", kMargin, grows,
       SeedNoise::kNormal, 0.25},
      {"a line that falls to the margin", kMargin, falls},
      {"wrong rates, mean 0.1 %", 0.1, WrongRates(0.1)},
      {"wrong rates, mean on the margin", kMargin, WrongRates(kMargin)},
      {"saturating (1e9 tokens)", Saturating(target), Of(Saturating)},
      {"late (from 1e10 tokens)", Late(target), Of(Late)},
      {"step above 2B active parameters", Step(target), Of(Step)},
      {"cool-down that the sizes do not reach", CoolDown(target), Of(CoolDown)},
  };
}

/// Says whether the number of seeds that reports name is enough.
void PrintSeeds(SimulatedLadder ladder, size_t ladders) {
  ladder.seeds = kSeeds[0];
  std::mt19937_64 random(2);
  double safe = 0;
  double seeds = 0;
  for (size_t i = 0; i < ladders; ++i) {
    SimulatedLadder enough = ladder;
    enough.seeds =
        StateLadder("simulated", "baseline",
                    {{.name = "arm",
                      .recipe = "",
                      .cells = DrawCells(ladder, EverywhereLaw(0), random)}},
                    ladder.question)
            .arms[0]
            .sizes[0]
            .seeds_without_gap;
    seeds += static_cast<double>(enough.seeds);
    safe += ShareOfVerdicts(enough, EverywhereLaw(0), 1, random()).safe;
  }
  const auto count = static_cast<double>(ladders);
  fmt::print(
      "\nSeeds that ladders of {} seeds name for an arm without a gap: "
      "{:.1f} on average; with them {:.1f} % are safe.\n",
      ladder.seeds, seeds / count, 100 * safe / count);
}

void PrintTable(size_t ladders) {
  SimulatedLadder ladder{
      .sizes = DefaultSizes(),
      .question = {.sizes = {ParseSize("16B")}, .margin_percent = kMargin}};
  fmt::print(
      "| law | gap at {}, % | SAFE, % | UNSAFE, % |\n|---|---|---|---|\n",
      SizeText(ladder.question.sizes[0]));
  for (const Row& row : Rows(ladder.sizes, ladder.question.sizes[0])) {
    std::string safe;
    std::string unsafe;
    for (const size_t seeds : kSeeds) {
      ladder.seeds = seeds;
      ladder.noise = row.noise;
      ladder.spread_growth = row.spread_growth;
      const VerdictShares shares = ShareOfVerdicts(ladder, row.law, ladders, 1);
      const char* comma = safe.empty() ? "" : ", ";
      safe += fmt::format("{}{:.1f}", comma, 100 * shares.safe);
      unsafe += fmt::format("{}{:.1f}", comma, 100 * shares.unsafe);
    }
    fmt::print("| {} | {:.2f} | {} | {} |\n", row.name, row.at_target, safe,
               unsafe);
  }
  ladder.noise = SeedNoise::kNormal;
  ladder.spread_growth = 1;
  PrintSeeds(ladder, ladders);
}

}  // namespace
}  // namespace isoloss::estimators

int main(int count, char** arguments) {
  const long ladders = count == 2 ? std::atol(arguments[1]) : 10000;
  if (count > 2 || ladders < 1) {
    fmt::print(stderr,
               "ladder_simulation: one number of ladders for each row, at "
               "least 1, may be given, such as 10000.\n");
    return 2;
  }
  isoloss::estimators::PrintTable(static_cast<size_t>(ladders));
}
