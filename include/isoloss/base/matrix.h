// Row-major matrices: a view that owns nothing and an aligned owner.
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>

#include "isoloss/base/error.h"
#include "isoloss/base/memory.h"

namespace isoloss {

/// A rows x cols window on row-major memory; row i starts at data + i * stride.
/// Copying a view copies the window, not the elements. Elements of a view are
/// as mutable as T says.
template <typename T>
class MatrixView {
 public:
  MatrixView() = default;
  MatrixView(T* data, size_t rows, size_t cols)
      : MatrixView(data, rows, cols, cols) {}
  MatrixView(T* data, size_t rows, size_t cols, size_t stride)
      : data_(data), rows_(rows), cols_(cols), stride_(stride) {
    ISOLOSS_ASSERT(stride >= cols || rows <= 1);
  }
  /// A view of mutable elements converts to one of const elements.
  // NOLINTBEGIN(google-explicit-constructor): passing it on is the point.
  template <typename U>
  requires(std::is_same_v<const U, T> && !std::is_same_v<U, T>)
      MatrixView(const MatrixView<U>& other)
      : MatrixView(other.data(), other.rows(), other.cols(), other.stride()) {}
  // NOLINTEND(google-explicit-constructor)

  constexpr T* data() const { return data_; }
  constexpr size_t rows() const { return rows_; }
  constexpr size_t cols() const { return cols_; }
  constexpr size_t stride() const { return stride_; }
  constexpr bool empty() const { return rows_ == 0 || cols_ == 0; }

  constexpr T* Row(size_t row) const { return data_ + row * stride_; }
  constexpr T& operator()(size_t row, size_t col) const {
    return Row(row)[col];
  }

  /// Returns rows [first, first + count).
  MatrixView Rows(size_t first, size_t count) const {
    ISOLOSS_ASSERT(first + count <= rows_);
    return {data_ + first * stride_, count, cols_, stride_};
  }
  /// Returns columns [first, first + count).
  MatrixView Cols(size_t first, size_t count) const {
    ISOLOSS_ASSERT(first + count <= cols_);
    return {data_ + first, rows_, count, stride_};
  }

 private:
  T* data_ = nullptr;
  size_t rows_ = 0;
  size_t cols_ = 0;
  size_t stride_ = 0;
};

/// Owns rows x cols elements, densely stored, aligned, zero at first, in the
/// host's memory unless another one is given, which must outlive the matrix.
/// Functions of the host may use elements only of a matrix in its memory.
/// Moves, does not copy (use CopyFrom): a copy of a tensor is never implicit.
template <typename T>
class Matrix {
 public:
  Matrix() = default;
  explicit Matrix(Memory& memory) : data_(nullptr, {&memory}) {}
  Matrix(size_t rows, size_t cols) { Resize(rows, cols); }

  /// Gives the matrix a new extent and zeroes it. Keeps the allocation if it is
  /// large enough, so that a step loop allocates only once.
  void Resize(size_t rows, size_t cols) {
    ResizeUninitialized(rows, cols);
    SetZero();
  }
  /// As Resize, but elements are unspecified.
  void ResizeUninitialized(size_t rows, size_t cols) {
    if (rows * cols > capacity_) {
      *this = Matrix(memory());  // there may not be memory for both
      data_.reset(static_cast<T*>(memory().Allocate(rows * cols * sizeof(T))));
      capacity_ = rows * cols;
    }
    rows_ = rows;
    cols_ = cols;
  }
  void SetZero() {
    if (size() > 0) memory().SetZero(data(), size() * sizeof(T));
  }
  /// The two may lie in different memories.
  void CopyFrom(const Matrix& other) {
    ResizeUninitialized(other.rows_, other.cols_);
    CopyBetween(other.memory(), other.data(), size() * sizeof(T), memory(),
                data());
  }

  Memory& memory() const { return *data_.get_deleter().memory; }
  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  size_t rows() const { return rows_; }
  size_t cols() const { return cols_; }
  size_t size() const { return rows_ * cols_; }

  T* Row(size_t row) { return data() + row * cols_; }
  const T* Row(size_t row) const { return data() + row * cols_; }
  T& operator()(size_t row, size_t col) { return Row(row)[col]; }
  const T& operator()(size_t row, size_t col) const { return Row(row)[col]; }

  MatrixView<T> view() { return {data(), rows_, cols_}; }
  MatrixView<const T> view() const { return {data(), rows_, cols_}; }
  MatrixView<const T> cview() const { return view(); }

 private:
  static_assert(std::is_trivially_copyable_v<T>);
  struct Free {
    Memory* memory = &kHostMemory;
    void operator()(T* p) const { memory->Free(p); }
  };

  std::unique_ptr<T[], Free> data_;
  size_t rows_ = 0;
  size_t cols_ = 0;
  size_t capacity_ = 0;
};

/// Elements of a matrix for a function of the host: its own where they lie in
/// the host's memory, else a copy.
template <typename T>
class HostRows {
 public:
  HostRows(MatrixView<const T> values, Memory& memory) : view_(values) {
    if (memory.is_host()) return;
    copy_.ResizeUninitialized(values.rows(), values.cols());
    view_ = copy_.view();
    if (view_.empty()) return;
    const bool dense = values.stride() == values.cols();
    const size_t runs = dense ? 1 : values.rows();
    const size_t bytes = copy_.size() / runs * sizeof(T);
    for (size_t run = 0; run < runs; ++run) {
      memory.CopyToHost(values.Row(run), bytes, copy_.Row(run));
    }
  }

  MatrixView<const T> view() const { return view_; }

 private:
  MatrixView<const T> view_;
  Matrix<T> copy_;
};

/// Lets edit(view), a function of the host, change a matrix. If the matrix lies
/// in another memory, the function gets a copy, which then replaces it.
template <typename T, typename Edit>
void EditOnHost(Matrix<T>& matrix, const Edit& edit) {
  if (matrix.memory().is_host()) return edit(matrix.view());
  Matrix<T> copy;
  copy.CopyFrom(matrix);
  edit(copy.view());
  matrix.CopyFrom(copy);
}

/// Columns become rows.
template <typename T>
Matrix<std::remove_const_t<T>> Transposed(MatrixView<T> values) {
  Matrix<std::remove_const_t<T>> result(values.cols(), values.rows());
  for (size_t i = 0; i < values.rows(); ++i) {
    for (size_t j = 0; j < values.cols(); ++j) result(j, i) = values(i, j);
  }
  return result;
}

}  // namespace isoloss
