from epochfence.cli.main import main

main()
