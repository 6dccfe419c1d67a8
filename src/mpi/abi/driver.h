/* SPDX-License-Identifier: BSD-3-Clause */
/* The facts of one ABI as struct abi. mpich.c, ompi.c and std.c include it behind the ABI's own
 * header, and ABI_HANDLE(): what the tables of known datatypes and operations hold at first. */
#ifndef SLUICE_MPI_ABI_DRIVER_H
#define SLUICE_MPI_ABI_DRIVER_H

static ABI_TABLE struct abi_known numbers[] = {
#define X(name, handle, type) { ABI_HANDLE(handle), type },
	ABI_NUMBERS(X)
#undef X
};

static ABI_TABLE struct abi_known ops[] = {
#define X(name, handle, op) { ABI_HANDLE(handle), op },
	ABI_OPS(X)
#undef X
};

static inline void driver_fill(struct abi *out, size_t handle_bytes)
{
	*out = (struct abi){
		.predefined = { ABI_PREDEFINED },
		.handle_mask = handle_bytes == sizeof(uint32_t) ? UINT32_MAX : UINTPTR_MAX,
		.handle_bytes = handle_bytes,
		.in_place = ABI_IN_PLACE,
		.comm_null = ABI_COMM_NULL,
		.comm_world = ABI_COMM_WORLD,
		.comm_self = ABI_COMM_SELF,
		.datatype_null = ABI_DATATYPE_NULL,
		.byte = ABI_BYTE,
		.op_null = ABI_OP_NULL,
		.request_null = ABI_REQUEST_NULL,
		.bor = ABI_BOR,
		.status_ignore = ABI_STATUS_IGNORE,
		.status_ints = ABI_STATUS_INTS,
		.status_source = ABI_STATUS_SOURCE,
		.status_tag = ABI_STATUS_TAG,
		.status_error = ABI_STATUS_ERROR,
		.any_source = ABI_ANY_SOURCE,
		.any_tag = ABI_ANY_TAG,
		.thread_multiple = ABI_THREAD_MULTIPLE,
		.undefined = ABI_UNDEFINED,
		.root = ABI_ROOT,
		.graph = ABI_GRAPH,
		.cart = ABI_CART,
		.dist_graph = ABI_DIST_GRAPH,
		.err_truncate = ABI_ERR_TRUNCATE,
		.err_other = ABI_ERR_OTHER,
		.err_in_status = ABI_ERR_IN_STATUS,
		.err_no_mem = ABI_ERR_NO_MEM,
		.err_cancel = ABI_ERR_CANCEL,
		.combiner_dup = ABI_COMBINER_DUP,
		.combiner_contiguous = ABI_COMBINER_CONTIGUOUS,
		.combiner_resized = ABI_COMBINER_RESIZED,
		.combiner_vector = ABI_COMBINER_VECTOR,
		.combiner_hvector = ABI_COMBINER_HVECTOR,
		.combiner_indexed = ABI_COMBINER_INDEXED,
		.combiner_hindexed = ABI_COMBINER_HINDEXED,
		.combiner_indexed_block = ABI_COMBINER_INDEXED_BLOCK,
		.combiner_hindexed_block = ABI_COMBINER_HINDEXED_BLOCK,
		.combiner_struct = ABI_COMBINER_STRUCT,
		.combiner_subarray = ABI_COMBINER_SUBARRAY,
		.combiner_darray = ABI_COMBINER_DARRAY,
		.order_c = ABI_ORDER_C,
		.distribute_none = ABI_DISTRIBUTE_NONE,
		.distribute_cyclic = ABI_DISTRIBUTE_CYCLIC,
		.distribute_dflt_darg = ABI_DISTRIBUTE_DFLT_DARG,
		.numbers = numbers,
		.number_count = BASE_ARRAY_LEN(numbers),
		.ops = ops,
		.op_count = BASE_ARRAY_LEN(ops),
	};
}

#endif
