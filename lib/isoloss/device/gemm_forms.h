// The device's form of kernels::GemmBatch: products of one kind are computed by
// one launch.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <span>
#include <type_traits>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/base/executor.h"
#include "isoloss/device/executor.h"
#include "isoloss/device/form_table.h"
#include "isoloss/device/fragment_tiles.h"
#include "isoloss/device/gemm_kernels.h"
#include "isoloss/device/gemm_operands.h"
#include "isoloss/device/prepare_forms.h"
#include "isoloss/kernels/gemm.h"

namespace isoloss::device {

/// An H100 has so many processors. Results do not depend on the number.
inline constexpr double kProcessors = 132;
/// From so many tasks on, a task computes several segments: more tasks would
/// not occupy the processors any better.
inline constexpr size_t kManyTasks = 1024;

template <typename Shape>
size_t TilesOf(const Product& product) {
  return CeilOf(product.result.c.rows(), Shape::kRows) *
         CeilOf(product.result.c.cols(), Shape::kCols);
}

/// Estimates the time that products take with tiles of a shape, if a processor
/// needs `cycles` for a step of a tile. The busiest one has whole tiles.
template <typename Shape>
double CyclesOf(std::span<const Product> products,
                std::span<const size_t> depths, double cycles) {
  double tasks = 0;
  double steps = 0;
  double longest = 0;
  for (size_t i = 0; i < products.size(); ++i) {
    const auto tiles = static_cast<double>(TilesOf<Shape>(products[i]));
    const auto segments = static_cast<double>(products[i].segment_count);
    const auto depth = static_cast<double>(depths[i]);
    tasks += tiles * segments;
    steps += tiles * depth;
    longest = std::max(longest, depth / segments);
  }
  if (tasks == 0) return 0;
  return cycles *
         std::max(std::ceil(tasks / kProcessors) * steps / tasks, longest);
}

/// Lists products of one kind and launches them together.
template <typename Target>
class ProductList {
 public:
  ProductList(Call<Target>& call, Rooms<Target>& rooms)
      : call_(call), rooms_(rooms) {}

  void Add(const Product& product, size_t depth) {
    products_.push_back(product);
    depths_.push_back(depth);
  }

  /// Launches chains, in tiles of the shape that is best for them.
  template <bool kPieces>
  void Multiply() {
    // An element takes an issue slot of a processor's 128 lanes; the rest is
    // what else a tile's main loop issues, and how well few warps hide waits.
    constexpr double kHuge = 256 * 1.09;
    constexpr double kLarge = 128 * 1.14;
    constexpr double kMedium = 32 * 1.25;
    constexpr double kSmall = 8 * 1.65;
    const auto cycles_of = [this]<typename Shape>(Shape, double cycles) {
      return CyclesOf<Shape>(products_, depths_, cycles);
    };
    const double large = cycles_of(LargeTile(), kLarge);
    const double medium = cycles_of(MediumTile(), kMedium);
    const double small = cycles_of(SmallTile(), kSmall);
    const double least = std::min({large, medium, small});
    if constexpr (!kPieces) {
      // Sums of pieces need the registers of this tile.
      if (cycles_of(HugeTile(), kHuge) <= least) {
        return Multiply<ProductTile<HugeTile>, kPieces>();
      }
    }
    if (large <= least) return Multiply<ProductTile<LargeTile>, kPieces>();
    if (medium <= least) return Multiply<ProductTile<MediumTile>, kPieces>();
    Multiply<ProductTile<SmallTile>, kPieces>();
  }

  /// Launches sums by accumulators of tensor cores, in the same way.
  template <bool kPieces>
  void MultiplyFragments() {
    // An instruction takes 1.5 cycles of a processor. Small tiles take as long
    // as the block's memory needs for its words, 128 bytes a cycle.
    constexpr double kHuge = 24;
    constexpr double kLarge = 12 * 1.05;
    constexpr double kMedium = 6;
    constexpr double kSmall = 3;
    using Large = std::conditional_t<kPieces, LargePieces, LargeFragments>;
    const auto cycles_of = [this]<typename Shape>(Shape, double cycles) {
      return CyclesOf<Shape>(products_, depths_, cycles);
    };
    const double large = cycles_of(Large(), kLarge);
    const double medium = cycles_of(MediumFragments(), kMedium);
    const double small = cycles_of(SmallFragments(), kSmall);
    const double least = std::min({large, medium, small});
    if constexpr (!kPieces) {
      if (cycles_of(HugeFragments(), kHuge) <= least) {
        return Multiply<FragmentTile<HugeFragments>, kPieces>();
      }
    }
    if (large <= least) return Multiply<FragmentTile<Large>, kPieces>();
    if (medium <= least) {
      return Multiply<FragmentTile<MediumFragments>, kPieces>();
    }
    Multiply<FragmentTile<SmallFragments>, kPieces>();
  }

  /// Launches sums by accumulators that no tensor core here has.
  void Accumulate() {
    SetElementEnds([](const Product&) { return true; });
    const auto elements = Uploaded<&Product::elements_end>();
    call_.Launch(ForEachElement<AccumulateElement>{{elements}, elements.total});
  }

 private:
  template <typename Tile, bool kPieces>
  void Multiply() {
    using Shape = typename Tile::Shape;
    const size_t group = GroupOf<Shape>();
    size_t tasks = 0;
    for (Product& product : products_) {
      ISOLOSS_ASSERT(product.segment_count > 0);
      product.group = std::min(group, std::bit_ceil(product.segment_count));
      const size_t segments = std::min(product.group, product.segment_count);
      const size_t groups = product.group_count();
      const size_t count = TilesOf<Shape>(product) * groups;
      product.tasks_end = tasks += count;
      product.stack_depth = static_cast<size_t>(std::bit_width(segments - 1));
      product.stack = rooms_.template Take<float>(count * product.stack_depth *
                                                  Shape::kRows * Shape::kCols);
      if (groups > 1) {
        product.subtrees = rooms_.template Take<float>(
            groups * product.result.c.rows() * product.result.c.cols());
      }
    }
    SetElementEnds(
        [](const Product& product) { return product.group_count() > 1; });
    const auto tiles = Uploaded<&Product::tasks_end>();
    call_.Launch(MultiplyTiles<Tile, kPieces>{{}, tiles});
    const auto elements = TableOf<&Product::elements_end>(
        std::span<const Product>(products_), tiles.entries);
    call_.Launch(ForEachElement<FoldElement>{{elements}, elements.total});
  }

  /// Returns the number of segments of a task, a power of two.
  template <typename Shape>
  size_t GroupOf() const {
    size_t most = 1;
    for (const Product& product : products_) {
      most = std::max(most, std::bit_ceil(product.segment_count));
    }
    size_t group = 1;
    while (group < most) {
      size_t tasks = 0;
      for (const Product& product : products_) {
        tasks +=
            TilesOf<Shape>(product) * CeilOf(product.segment_count, 2 * group);
      }
      if (tasks < kManyTasks) break;
      group *= 2;
    }
    return group;
  }

  /// Shares out the elements of those products that `is_meant` is true of.
  template <typename IsMeant>
  void SetElementEnds(const IsMeant& is_meant) {
    size_t elements = 0;
    for (Product& product : products_) {
      if (is_meant(product)) {
        elements += product.result.c.rows() * product.result.c.cols();
      }
      product.elements_end = elements;
    }
  }

  template <auto kEnd>
  Table<Product, kEnd> Uploaded() {
    const std::span<const Product> host(products_);
    return TableOf<kEnd>(host, call_.Upload(host));
  }

  Call<Target>& call_;
  Rooms<Target>& rooms_;
  std::vector<Product> products_;
  std::vector<size_t> depths_;
};

/// Returns a product without its operands and segments.
inline Product ProductOf(const kernels::GemmProblem& problem,
                         const Axis& axis) {
  Product product;
  product.result = {problem.c, problem.addend, problem.rounding,
                    AreQuads(problem.c)};
  product.adder.outer = problem.accumulation.outer;
  if (problem.accumulation.accumulator != nullptr) {
    product.accumulator = *problem.accumulation.accumulator;
  }
  product.segment_count = axis.segments.size();
  product.piece_steps = axis.piece_steps();
  return product;
}

/// Lists the products of a batch by kind.
template <typename Target>
class ProductLists {
 public:
  ProductLists(Call<Target>& call, Rooms<Target>& rooms)
      : call_(call),
        chains_(call, rooms),
        sums_of_pieces_(call, rooms),
        fragments_(call, rooms),
        pieces_of_fragments_(call, rooms),
        accumulated_(call, rooms) {}

  void Add(const Product& product, const Axis& axis,
           const kernels::Accumulation& accumulation) {
    const kernels::Accumulator* const accumulator = accumulation.accumulator;
    const bool is_whole = !product.adder.scaled &&
                          accumulation == kernels::Accumulation{accumulator};
    if (axis.is_packed) {
      call_.target().RequireAdder(*accumulator);
      (is_whole ? fragments_ : pieces_of_fragments_).Add(product, axis.depth());
    } else if (accumulator != nullptr) {
      accumulated_.Add(product, axis.depth());
    } else {
      (is_whole ? chains_ : sums_of_pieces_).Add(product, axis.depth());
    }
  }

  void Run() {
    chains_.template Multiply<false>();
    sums_of_pieces_.template Multiply<true>();
    fragments_.template MultiplyFragments<false>();
    pieces_of_fragments_.template MultiplyFragments<true>();
    accumulated_.Accumulate();
  }

 private:
  Call<Target>& call_;
  ProductList<Target> chains_;
  ProductList<Target> sums_of_pieces_;
  ProductList<Target> fragments_;
  ProductList<Target> pieces_of_fragments_;
  ProductList<Target> accumulated_;
};

template <typename Target>
void GemmBatchForm(std::span<const kernels::GemmProblem> problems,
                   Executor& executor) {
  Call<Target> call(executor);
  Rooms<Target> rooms(call);
  std::vector<const kernels::GemmProblem*> listed;
  std::vector<Axis> axes;
  std::vector<Segment> segments;
  for (const kernels::GemmProblem& problem : problems) {
    ISOLOSS_ASSERT(problem.packed_b == nullptr);
    if (problem.c.empty()) continue;
    listed.push_back(&problem);
    const Axis& axis = axes.emplace_back(AxisOf(problem));
    segments.insert(segments.end(), axis.segments.begin(), axis.segments.end());
  }

  Operands<Target> operands(call, rooms);
  ProductLists<Target> lists(call, rooms);
  const Segment* segment = call.Upload(std::span<const Segment>(segments));
  for (size_t i = 0; i < listed.size(); ++i) {
    const kernels::GemmProblem& problem = *listed[i];
    const kernels::Accumulator* const accumulator =
        problem.accumulation.accumulator;
    Product product = ProductOf(problem, axes[i]);
    product.a = operands.SideOf(problem.a, axes[i], accumulator);
    product.b = operands.SideOf(problem.b, axes[i], accumulator);
    product.adder.scaled =
        product.a.factors.data != nullptr || product.b.factors.data != nullptr;
    product.segments = segment;
    segment += product.segment_count;
    lists.Add(product, axes[i], problem.accumulation);
  }
  operands.Run();
  lists.Run();
}

template <typename Target>
void AddGemmForms(Forms& forms) {
  AddForm(&kernels::GemmBatch, &GemmBatchForm<Target>, forms);
  AddForm(&kernels::QuantizeTensors, &QuantizeTensorsForm<Target>, forms);
}

}  // namespace isoloss::device
