#include "isoloss/oracle/formats_check.h"

#include <array>
#include <cmath>
#include <string_view>

#include "isoloss/formats/mx_block.h"

namespace isoloss::oracle {
namespace {

using formats::ScaleRule;

constexpr size_t kElements = 4;

/// A block and what it is after quantisation.
struct Block {
  std::string_view element;
  ScaleRule mode;
  std::array<float, kElements> in;
  std::array<float, kElements> out;
};

// The second element is the smallest subnormal under scale 1 and half of it,
// a tie that goes to zero, under scale 2: it tells the scale. The third and the
// fourth are ties or saturate.
constexpr Block kBlocks[] = {
    // E4M3: at most 448; 16 to 32 in steps of 2.
    {"e4m3",
     ScaleRule::kRceil,
     {448, 0x1p-9f, 17, -19},
     {448, 0x1p-9f, 16, -20}},
    {"e4m3", ScaleRule::kRceil, {480, 0x1p-9f, 17, -38}, {480, 0, 16, -40}},
    {"e4m3",
     ScaleRule::kFloor,
     {448, 0x1p-9f, 17, -19},
     {448, 0x1p-9f, 16, -20}},
    {"e4m3",
     ScaleRule::kFloor,
     {480, 0x1p-9f, -511, 0x1.8p-8f},
     {448, 0x1p-9f, -448, 0x1.8p-8f}},
    {"e4m3", ScaleRule::kCeil, {448, 0x1p-9f, 34, -38}, {448, 0, 32, -40}},
    {"e4m3",
     ScaleRule::kCeil,
     {256, 0x1p-9f, 17, -19},
     {256, 0x1p-9f, 16, -20}},
    {"e4m3",
     ScaleRule::kEven,
     {480, 0x1p-9f, 17, -19},
     {448, 0x1p-9f, 16, -20}},
    {"e4m3", ScaleRule::kEven, {496, 0x1p-9f, 34, -38}, {512, 0, 32, -40}},
    // E5M2: at most 57344; 16 to 32 in steps of 4.
    {"e5m2",
     ScaleRule::kRceil,
     {57344, 0x1p-16f, 18, -22},
     {57344, 0x1p-16f, 16, -24}},
    {"e5m2",
     ScaleRule::kRceil,
     {61440, 0x1p-16f, 36, -44},
     {65536, 0, 32, -48}},
    {"e5m2",
     ScaleRule::kFloor,
     {61440, 0x1p-16f, 18, -22},
     {57344, 0x1p-16f, 16, -24}},
    // E2M1: at most 6; 2 to 4 in steps of 1.
    {"e2m1", ScaleRule::kFloor, {6, 0.5f, 2.5f, -3.5f}, {6, 0.5f, 2, -4}},
    {"e2m1", ScaleRule::kFloor, {7, 0.25f, 5, -7}, {6, 0, 4, -6}},
};

}  // namespace

void CheckFormats(ReportSink& sink) {
  Comparison comparison(Grid::kFp32);
  size_t row = 0;
  for (const Block& block : kBlocks) {
    std::array<float, kElements> out{};
    formats::QuantizeDequantizeBlock(
        block.in,
        {.element = &formats::FormatByName(block.element),
         .scale_rule = block.mode},
        out);
    for (size_t i = 0; i < kElements; ++i) {
      comparison.AddExact(row, i, out[i], block.out[i]);
    }
    ++row;
  }
  sink.Add("formats", comparison);
}

}  // namespace isoloss::oracle
