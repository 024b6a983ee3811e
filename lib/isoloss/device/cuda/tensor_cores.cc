#include "isoloss/device/cuda/tensor_cores.h"

#include <fmt/format.h>

#include "isoloss/device/fragments.h"

namespace isoloss::device {
namespace {

/// Minor versions [least_minor, most_minor] of a compute capability.
struct Cards {
  int major;
  int least_minor;
  int most_minor;
  const char* text;
  const char* accumulator;
};

/// Each accumulator's source says on which silicon it was seen.
constexpr Cards kCards[] = {{8, 0, 9, "8.x", "ampere_bf16"},
                            {9, 0, 0, "9.0", "hopper_bf16"},
                            {10, 0, 9, "10.x", "hopper_bf16"}};

const Cards* CardsOf(int major, int minor) {
  for (const Cards& cards : kCards) {
    if (cards.major == major && minor >= cards.least_minor &&
        minor <= cards.most_minor) {
      return &cards;
    }
  }
  return nullptr;
}

std::string CapabilitiesWith(std::string_view accumulator) {
  std::string text;
  for (const Cards& cards : kCards) {
    if (accumulator != cards.accumulator) continue;
    text += text.empty() ? "" : " or ";
    text += cards.text;
  }
  return text;
}

}  // namespace

const kernels::Accumulator* AccumulatorOfMma(int major, int minor) {
  const Cards* const cards = CardsOf(major, minor);
  return cards == nullptr ? nullptr
                          : &kernels::AccumulatorByName(cards->accumulator);
}

std::string WrongAdder(const std::string& name, int major, int minor,
                       const kernels::Accumulator& accumulator) {
  const kernels::Accumulator* const own = AccumulatorOfMma(major, minor);
  if (own != nullptr && own->name == accumulator.name) return "";
  const std::string adds = own == nullptr
                               ? "in a way that isoloss does not know"
                               : fmt::format("as `{}` does", own->name);
  return fmt::format(
      "{} has compute capability {}.{}, whose tensor cores add {}, but sums of "
      "the recipe are those of `{}`. Take a GPU of compute capability {}, or "
      "run on the CPU.",
      name, major, minor, adds, accumulator.name,
      CapabilitiesWith(accumulator.name));
}

}  // namespace isoloss::device
